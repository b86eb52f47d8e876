"""Templates filled in: one file without scripts that loads nothing, in which every value is text."""

import base64
import hashlib
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from turret.data import text
from turret.data.files import new_file
from turret.training.baselines.registry import BASELINES
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import TOWERS


def render(template: str, **values: Any) -> str:
    """A page from a template of this package."""
    return _environment().get_template(template).render(values)


def check_output(path: Path) -> None:
    """Raise TrainingError for a path that is a folder or has another suffix than .html."""
    if path.is_dir():
        raise TrainingError(
            f"--output {path}: this is a folder; name a file, such as {path / 'report.html'}."
        )
    if path.suffix.lower() not in (".html", ".htm"):
        raise TrainingError(f"--output {path}: the report is a page; the name must end in .html.")


def write_page(path: Path, page: str) -> None:
    """Write a page to `path` in one step; its folder is created if it is missing.

    Raises:
        TrainingError: the file can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as draft:
            draft.write_text(page, encoding="utf-8")
    except OSError as error:
        raise TrainingError(f"--output {path}: it can't be written ({error}).") from None


def ranker_title(name: str) -> str:
    """A ranker as a table names it."""
    if name == TOWERS:
        return "this run"
    return BASELINES[name].title if name in BASELINES else name


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("turret.training.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    style = files("turret.training.page").joinpath("style.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    environment.filters |= {
        name: getattr(text, name)
        for name in ("figure", "interval", "signed", "signed_interval", "percent", "count", "duration")
    }
    environment.filters |= {"ranker": ranker_title, "code": _with_code}
    environment.globals |= {
        "style": Markup(style),
        # Nothing may be loaded or run but this stylesheet and the drawings within the page.
        "policy": f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; "
        "form-action 'none'",
        "scale": _scale,
    }
    return environment


def _printable(value: Any) -> Any:
    """Text with a mark in place of characters that HTML or UTF-8 do not allow."""
    if not isinstance(value, str):
        return value
    plain = value.encode("utf-8", "replace").decode("utf-8")
    kept = "".join(letter if letter >= " " or letter in "\n\t" else "\ufffd" for letter in plain)
    return Markup(kept) if isinstance(value, Markup) else kept


def _with_code(sentence: str) -> Markup:
    """Words between backquotes as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(sentence))))


def _scale(values: list[dict[str, float]]) -> tuple[float, float]:
    """The ends of a column of intervals, which has zero too."""
    ends = [end for value in values for end in (value["low"], value["high"])]
    low, high = min(0.0, *ends), max(0.0, *ends)
    return low, (high - low) or 1.0
