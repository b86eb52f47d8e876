"""The site of the documents: every page is in the navigation, and links stay within it."""

from pathlib import Path

from deploy.site import navigation, within_site
from tests.support.places import ROOT


def test_the_navigation_has_every_page_once() -> None:
    sections = navigation((ROOT / "docs" / "README.md").read_text("utf-8"))
    pages = [page for section in sections for pages in section.values() for page in pages]  # type: ignore[attr-defined]
    names = [page if isinstance(page, str) else next(iter(page.values())) for page in pages]
    assert sorted(names) == sorted([*(path.name for path in (ROOT / "docs").glob("*.md")), "start.md"])


def test_a_link_leads_to_a_page_or_is_none() -> None:
    moved = {Path("/r/README.md"): "start.md", Path("/r/docs/data.md"): "data.md"}
    text = (
        "[a](data.md#x) [b](../README.md) [c](../tests/test_it.py) [d](#here) [e](https://x.org) ![f](no.png)"
    )
    expected = "[a](data.md#x) [b](start.md) c [d](#here) [e](https://x.org) !f"
    assert within_site(text, Path("/r/docs"), moved) == expected
