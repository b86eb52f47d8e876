"""Regenerate the tables and figures of the pages from code, tests and results: `make docs`.

The sentences are written by hand, the figures come from `benchmarks.pages`, and the plots are drawn by
`python -m benchmarks.plots`. With `--check` nothing is changed: the pages that are not current are named, and
the exit status is 1.
"""

import ast
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from prometheus_client.metrics import MetricWrapperBase
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from benchmarks.api_document import DOCUMENT, api_document, api_page, as_text
from benchmarks.api_types import TYPES, as_types
from benchmarks.overview import PICTURES, overview
from benchmarks.pages import section
from turret.data.extras import kind_of
from turret.service.observing.metrics import Metrics
from turret.service.settings import Settings
from turret.training.config.experiment import ExperimentConfig
from turret.training.losses.registry import LOSSES
from turret.training.samplers.registry import SAMPLERS

ROOT = Path(__file__).parent.parent


def fault_tests() -> dict[int, list[str]]:
    """Links to the tests of each fault of the service by its number, in the order of their files."""
    links: dict[int, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        body = ast.parse(source).body if "mark.fault(" in source else []
        shared = re.findall(r"^pytestmark = (.+)$", source, re.MULTILINE)
        for test in body:
            if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) and test.name.startswith("test_"):
                marks = [*shared, *map(ast.unparse, test.decorator_list)]
                link = f"[`{test.name}`](../{path.relative_to(ROOT).as_posix()})"
                link += " *nightly*" * any(mark.startswith("pytest.mark.nightly") for mark in marks)
                calls = (mark for mark in marks if mark.startswith("pytest.mark.fault("))
                for number in {int(digits) for mark in calls for digits in re.findall(r"\d+", mark)}:
                    links[number].append(link)
    return dict(links)


DOCS = ROOT / "docs"
API_PAGE = DOCUMENT.with_name("docs.html")
DRAWN = tuple(DOCS / name for name in PICTURES)
PAGES = (ROOT / "README.md", DOCUMENT, API_PAGE, TYPES, *DRAWN, *sorted(DOCS.glob("*.md")))
BEGIN, END = "<!-- figures: written by `make docs` from benchmarks/results -->\n", "<!-- end of figures -->\n"
# A row of a table: the text of each cell by the heading of its column.
Cells = dict[str, str]


class DocumentError(Exception):
    """A page does not fit the code, and only its author can mend it."""


def current(page: Path) -> str:
    """The text that the page should have."""
    if page in DRAWN:
        return overview(PICTURES[page.name])
    text = page.read_text(encoding="utf-8")
    if BEGIN in text:
        before, _, rest = text.partition(BEGIN)
        text = f"{before}{BEGIN}\n{section(page.name)}\n{END}{rest.partition(END)[2]}"
    text = _with_cells(text, {"setting", "default"}, _with_default)
    match page.name:
        case "estimators.md":
            return estimators_page(text)
        case "openapi.json":
            return as_text()
        case "docs.html":
            return api_page(api_document())
        case "turret.d.ts":
            return as_types(api_document())
        case "observability.md":
            return metrics_page(text, exported())
        case "reliability.md":
            return faults_page(text, fault_tests())
        case "training.md" if missing := [name for name in EXPERIMENT if f"`{name}`" not in text]:
            raise DocumentError(f"it does not name {', '.join(missing)}")
    return text


def faults_page(text: str, tests: dict[int, list[str]]) -> str:
    """Name the tests of each fault; raise DocumentError for a fault without a test, and the reverse."""
    rows = []

    def with_tests(cells: Cells) -> Cells:
        number = int(cells["#"])
        rows.append(number)
        if number not in tests:
            raise DocumentError(f"no test is marked `@pytest.mark.fault({number})`: {cells['failure']}")
        return {**cells, "tests": "<br>".join(tests[number])}

    text = _with_cells(text, {"#", "failure", "tests"}, with_tests)
    if without := sorted(tests.keys() - set(rows)):
        raise DocumentError(
            f"tests are marked `@pytest.mark.fault({without[0]})`, and the page has no such row"
        )
    return text


def exported() -> dict[str, str]:
    """The kind of every exported metric by its name."""
    return dict(re.findall(r"^# TYPE (\w+) (\w+)$", Metrics().export().decode(), re.MULTILINE))


def metrics_page(text: str, kinds: dict[str, str]) -> str:
    """Fill in the kinds and labels of the metrics; the names have to be those of `kinds`."""
    declared = [metric for metric in vars(Metrics()).values() if isinstance(metric, MetricWrapperBase)]
    labels = {metric._name: metric._labelnames for metric in declared}
    rows = []

    def with_kind(cells: Cells) -> Cells:
        name = next(iter(cells.values())).strip("`")
        rows.append(name)
        if name not in kinds:
            raise DocumentError(f"the service exports no {name}")
        known = labels.get(name.removesuffix("_total"))
        shown = cells["labels"] if known is None else ", ".join(f"`{label}`" for label in known)
        return {**cells, "kind": kinds[name], "labels": shown}

    text = _with_cells(text, {"kind", "labels", "description"}, with_kind)
    if missing := sorted(kinds.keys() - set(rows)):
        raise DocumentError(f"no row describes {', '.join(missing)}")
    return text


def estimators_page(text: str) -> str:
    """Fill in the settings of each loss and each sampler, with their defaults."""
    text = _with_settings(text, "loss", {kind_of(kind): kind for kind in LOSSES.values()})
    return _with_settings(text, "sampler", {kind_of(kind): kind for kind in SAMPLERS.values()})


def _with_settings(text: str, title: str, kinds: Mapping[str, type[BaseModel]]) -> str:
    """Fill in the settings of the table whose first column has this title; it has a row for each kind."""
    rows = []

    def filled(cells: Cells) -> Cells:
        rows.append(name := cells[title].strip("`"))
        if name not in kinds:
            raise DocumentError(f"there is no {title} {name}")
        fields = kinds[name].model_fields
        shown = [f"`{key}` {_shown(fields[key].default)}" for key in fields if key not in ("kind", "parts")]
        return {**cells, "settings": ", ".join(shown)}

    text = _with_cells(text, {title, "settings"}, filled)
    if missing := sorted(kinds.keys() - set(rows)):
        raise DocumentError(f"no row describes the {title} {', '.join(missing)}")
    return text


def experiment_settings(model: type[BaseModel], prefix: str = "") -> dict[str, list[object]]:
    """The dotted names of all settings below a model, each with the defaults of all kinds that have it."""
    settings: dict[str, list[object]] = {}
    for name, field in model.model_fields.items():
        sections = [] if name in ("loss", "sampler") else _sections(field.annotation)
        for part in sections:
            for below, defaults in experiment_settings(part, f"{prefix}{name}.").items():
                settings.setdefault(below, []).extend(defaults)
        if not sections and name != "kind" and not field.exclude:  # an excluded one is a removed setting
            settings[prefix + name] = [field.default]
    return settings


def _sections(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [model for part in get_args(annotation) for model in _sections(part)]


EXPERIMENT = experiment_settings(ExperimentConfig)


def _with_default(cells: Cells) -> Cells:
    """Fill in the defaults of settings of the service or of an experiment; other cells keep their words."""
    service = re.findall(r"`TURRET_(\w+)`", cells["setting"])
    if unknown := [name for name in service if name.lower() not in Settings.model_fields]:
        raise DocumentError(f"TURRET_{unknown[0]} is no setting of the service")
    defaults = [Settings.model_fields[name.lower()].default for name in service]
    experiment = EXPERIMENT.get(cells["setting"].strip("`"), [])
    if len(experiment) == 1:
        defaults = experiment
    if not defaults or any(default in (None, PydanticUndefined, ()) for default in defaults):
        return cells
    return {**cells, "default": ", ".join(map(_shown, defaults))}


def _shown(default: object) -> str:
    if isinstance(default, bool | list | tuple):
        return json.dumps(default)
    if isinstance(default, int):
        return f"{default:,}"
    return f"{default:g}" if isinstance(default, float) else f"`{default}`"


def _with_cells(text: str, columns: set[str], change: Callable[[Cells], Cells]) -> str:
    """Change the rows of every table that has all these columns."""
    lines, header = [], None
    for line in text.splitlines(keepends=True):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line[0] == "|" else None
        if cells is None or header is None:
            header = cells
        elif columns <= set(header) and not line.startswith("|---"):
            changed = change(dict(zip(header, cells, strict=True)))
            line = "|" + "".join(f" {cell} |" if cell else " |" for cell in changed.values()) + "\n"
        lines.append(line)
    return "".join(lines)


def main(arguments: Iterable[str]) -> int:
    """Write or check all pages, and give the exit status."""
    is_check = "--check" in arguments
    status = 0
    for page in PAGES:
        try:
            text = current(page)
        except DocumentError as error:
            print(f"{page.relative_to(ROOT)}: {error}", file=sys.stderr)
            status = 1
            continue
        if not page.exists() or text != page.read_text(encoding="utf-8"):
            if is_check:
                print(f"{page.relative_to(ROOT)} is not current: run `make docs`", file=sys.stderr)
                status = 1
            else:
                page.write_text(text, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
