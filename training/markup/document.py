"""The page around the sections: one file without scripts that loads nothing."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from turret.data.files.staging import new_file
from turret.training.errors import TrainingError
from turret.training.markup.elements import Child, Html, element


@dataclass(frozen=True)
class Section:
    """A part of a page below its own heading; `anchor` is its address in the page."""

    anchor: str
    heading: str
    content: Html


def page(title: str, lead: Child, sections: Sequence[Section]) -> str:
    """A whole HTML document with a table of contents."""
    style = files("turret.training.markup").joinpath("style.css").read_text(encoding="utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(style)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Html(style)),
    )
    contents = element(
        "nav",
        [element("a", one.heading, href=f"#{one.anchor}") for one in sections],
        aria_label="Contents",
    )
    body = [element("section", element("h2", one.heading), one.content, id=one.anchor) for one in sections]
    html = element(
        "html", head, element("body", element("header", lead), contents, element("main", body)), lang="en"
    )
    return f"<!doctype html>\n{html}\n"


def check_output(path: Path) -> None:
    """Raise TrainingError for a path that is a folder or has another suffix than .html."""
    if path.is_dir():
        raise TrainingError(
            f"--output {path}: this is a folder; name a file, such as {path / 'report.html'}."
        )
    if path.suffix.lower() not in (".html", ".htm"):
        raise TrainingError(f"--output {path}: the report is a page; the name must end in .html.")


def write_page(path: Path, text: str) -> None:
    """Write a page to `path` in one step; its folder is created if it is missing.

    Raises:
        TrainingError: the file can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as draft:
            draft.write_text(text, encoding="utf-8")
    except OSError as error:
        raise TrainingError(f"--output {path}: it can't be written ({error}).") from None


def _policy(style: str) -> str:
    """Nothing may be loaded or run but this stylesheet."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
