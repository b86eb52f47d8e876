"""The site of the documents: its navigation, the pages from docstrings, and the texts for language models."""

import json
import re
import tomllib
from pathlib import Path

import pytest

import turret
from deploy.llms import llms_full_txt, llms_txt
from deploy.reference import as_markdown, signature, write_reference
from deploy.site import navigation, within_site
from tests.support.places import ROOT
from turret import client
from turret.training.losses.registry import LOSSES
from turret.training.samplers.registry import SAMPLERS


def test_the_navigation_of_the_site_has_every_page_once() -> None:
    """README.md is the first of them, and docs/README.md has another name beside it."""
    sections = navigation((ROOT / "docs" / "README.md").read_text("utf-8"))
    names = re.findall(r"[\w-]+\.md", json.dumps(sections))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert names[0] == "index.md"
    assert sorted(names) == sorted([*pages, "index.md", "documents.md"])


def test_the_site_names_the_licence_of_the_package() -> None:
    site, package = (
        tomllib.loads((ROOT / file).read_text()) for file in ("deploy/site.toml", "pyproject.toml")
    )
    assert site["project"]["copyright"] == package["project"]["license"]
    assert "Apache License" in (ROOT / "LICENSE").read_text()


def test_a_link_of_the_site_leads_to_a_page_or_is_none() -> None:
    moved = {Path("/r/README.md"): "start.md", Path("/r/docs/data.md"): "data.md"}
    text = (
        "[a](data.md#x) [b](../README.md) [c](../tests/test_it.py) [d](#here) [e](https://x.org) ![f](no.png)"
    )
    expected = "[a](data.md#x) [b](start.md) c [d](#here) [e](https://x.org) f"
    assert within_site(text, Path("/r/docs"), moved) == expected


def test_a_picture_of_the_site_is_that_of_the_repository() -> None:
    moved = {Path("/r/docs/dark.svg"): "dark.svg", Path("/r/plots/of/set.svg"): "of_set.svg"}
    text = '<source srcset="docs/dark.svg"> <img src="plots/of/set.svg" alt="x"> ![y](plots/of/set.svg)'
    expected = '<source srcset="dark.svg"> <img src="of_set.svg" alt="x"> ![y](of_set.svg)'
    assert within_site(text, Path("/r"), moved) == expected


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The pages of the reference by the names of their files."""
    folder = tmp_path_factory.mktemp("reference")
    return {name: (folder / name).read_text("utf-8") for name in write_reference(folder)}


def test_the_reference_has_every_public_name_with_a_docstring(reference: dict[str, str]) -> None:
    text = "\n".join(reference.values())
    names = [f"turret.{name}" for name in turret.__all__ if name != "__version__"]
    names += [f"turret.client.{name}" for name in client.__all__]
    names += [f"turret.training.losses.{name}" for name in LOSSES]
    names += [f"turret.training.samplers.{name}" for name in SAMPLERS]
    titles = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert [name for name in names if name not in titles] == []
    parts = re.split(r"^#+ (.+)$", text, flags=re.MULTILINE)[1:]
    bodies = [re.sub(r"```.*?```", "", body, flags=re.DOTALL).strip() for body in parts[1::2]]
    assert [
        title for title, body in zip(parts[::2], bodies, strict=True) if not body and "#" not in title
    ] == []
    assert "Initialize self" not in text


def test_a_call_of_the_client_is_shown_as_it_is_called(reference: dict[str, str]) -> None:
    """The methods are made from functions, whose answers are wrapped; a user sees neither."""
    page = reference["reference_client.md"]
    assert "popular(\n    half_life: str | None = None,\n    kinds: Sequence[str] | None = None," in page
    assert "item(item_id: Id) -> ItemAnswer" in page
    assert "Call[" not in page.replace("call: Call[Answered]", "")


def test_the_answer_of_each_call_of_the_client_is_described(reference: dict[str, str]) -> None:
    """Those of the versions and of the admin calls, too."""
    page = reference["reference_client.md"]
    returned = set(re.findall(r"-> (\w+Answer)$", page, re.MULTILINE))
    assert {"RecommendAnswer", "VersionAnswer"} <= returned
    titles = {title.rpartition(".")[2] for title in re.findall(r"^## (.+)$", page, re.MULTILINE)}
    assert returned - titles == set()


def explained(first: "dict[str, list[int]]", *, second: str = "a, b") -> "int | None":
    """Return a number.

    Two sentences. See docs/data.md.

    Args:
        first: words that go on
            in a second line.
        second: a text.

    Raises:
        ValueError, KeyError: never.
    """


def test_a_docstring_becomes_markdown() -> None:
    assert signature("explained", explained) == (
        "explained(first: 'dict[str, list[int]]', *, second: str = 'a, b') -> int | None"
    )
    assert as_markdown(explained).split("\n\n") == [
        "Return a number.",
        "Two sentences. See [data](data.md).",
        "**Arguments**",
        "- `first`: words that go on in a second line.\n- `second`: a text.",
        "**Raises**",
        "- `ValueError, KeyError`: never.",
    ]


def test_the_texts_for_language_models_have_every_page() -> None:
    """The index is in the form of llmstxt.org: a title, a summary, and sections of links with notes."""
    sections: list[dict[str, object]] = [
        {"Turret": ["index.md", {"Start": "start.md"}]},
        {"More": [{"Data": "d.md"}]},
    ]
    assert llms_txt("Turret", "A summary.", sections, {"d.md": "of logs"}) == (
        "# Turret\n\n> A summary.\n\n## Turret\n\n- [The front page](index.md)\n- [Start](start.md)\n\n"
        "## More\n\n- [Data](d.md): of logs\n"
    )
    assert (
        llms_full_txt({"a.md": "# A\n", "b.md": "# B\n"}) == "<!-- a.md -->\n\n# A\n\n<!-- b.md -->\n\n# B\n"
    )
