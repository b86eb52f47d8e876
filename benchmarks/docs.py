"""Write into the pages what follows from the code, the tests and the results: `make docs`.

The sentences are written by hand, and the plots by `python -m benchmarks.readme`. With `--check` nothing is
changed: the pages that are not current are named, and the exit status is 1.
"""

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from pydantic_core import PydanticUndefined

from benchmarks.fault_tests import FaultTest, fault_tests
from benchmarks.folders import drawing
from benchmarks.readme import PAGES as FIGURES
from benchmarks.readme import filled
from turret.service.http.openapi.document import written
from turret.service.monitoring.drift import Drift
from turret.service.settings import Settings
from turret.service.telemetry.metrics import FAMILIES, Metrics

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FOLDERS_BEGIN, FOLDERS_END = "<!-- folders: written by `make docs` -->\n", "<!-- end of folders -->\n"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", DOCS / "openapi.json", *sorted(DOCS.glob("*.md")))
# A row of a table: the text of each cell by the heading of its column.
Cells = dict[str, str]


class DocumentError(Exception):
    """A page does not fit the code, and only its author can mend it."""


def current(page: Path) -> str:
    """The text that the page should have."""
    text = filled(page) if page in FIGURES else page.read_text(encoding="utf-8")
    text = _with_cells(text, {"setting", "default"}, _with_default)
    match page.name:
        case "CONTRIBUTING.md":
            before, _, rest = text.partition(FOLDERS_BEGIN)
            after = rest.partition(FOLDERS_END)[2]
            return f"{before}{FOLDERS_BEGIN}\n{drawing()}\n{FOLDERS_END}{after}"
        case "openapi.json":
            return written()
        case "observability.md":
            return metrics_page(text, exported())
        case "reliability.md":
            return faults_page(text, fault_tests())
    return text


def faults_page(text: str, tests: dict[int, list[FaultTest]]) -> str:
    """Name the tests of each fault; raise DocumentError for a fault without a test, and the reverse."""
    rows = []

    def with_tests(cells: Cells) -> Cells:
        number = int(cells["#"])
        rows.append(number)
        if number not in tests:
            raise DocumentError(f"no test is marked `@pytest.mark.fault({number})`: {cells['failure']}")
        return {**cells, "tests": "<br>".join(test.link() for test in tests[number])}

    text = _with_cells(text, {"#", "failure", "tests"}, with_tests)
    if without := sorted(tests.keys() - set(rows)):
        raise DocumentError(
            f"tests are marked `@pytest.mark.fault({without[0]})`, and the page has no such row"
        )
    return text


def exported() -> dict[str, str]:
    """The kind of every exported metric by its name."""
    metrics = Metrics()
    metrics.compute_with(Drift(metrics, 1.0).distances)
    return dict(re.findall(r"^# TYPE (\w+) (\w+)$", metrics.text().decode(), re.MULTILINE))


def metrics_page(text: str, kinds: dict[str, str]) -> str:
    """Fill in the kinds and labels of the metrics; the names have to be those of `kinds`."""
    labels = {family.name: [name for name, _ in family.labels] for family in FAMILIES}
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


def _with_default(cells: Cells) -> Cells:
    """Fill in the defaults of settings of the service; one without a value keeps its words."""
    names = re.findall(r"`TURRET_(\w+)`", cells["setting"])
    if unknown := [name for name in names if name.lower() not in Settings.model_fields]:
        raise DocumentError(f"TURRET_{unknown[0]} is no setting of the service")
    defaults = [Settings.model_fields[name.lower()].default for name in names]
    if not names or any(default in (None, PydanticUndefined) for default in defaults):
        return cells
    return {**cells, "default": ", ".join(map(_shown, defaults))}


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
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
        if text != page.read_text(encoding="utf-8"):
            if is_check:
                print(f"{page.relative_to(ROOT)} is not current: run `make docs`", file=sys.stderr)
                status = 1
            else:
                page.write_text(text, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
