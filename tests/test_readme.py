"""README.md and docs/*.md name only what exists: commands, options, make targets, files and headings."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.command_line import calls, check_call, commands

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MADE = "deploy/secrets"  # by deploy/setup
SHELL = ("sh", "console", "bash", "shell")

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def shell_lines(text: str) -> str:
    """The command lines of fenced shell blocks and of indented blocks."""
    blocks = [block for language, block in FENCE.findall(text) if language in SHELL]
    prompts = [line for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    typed = [block for block in blocks if not re.search(r"^\$ ", block, re.MULTILINE)]
    indented = re.findall(r"^ {4}((?:turret|make|docker) .*)$", FENCE.sub("", text), re.MULTILINE)
    return "\n".join([*typed, *(line.removeprefix("$ ") for line in prompts), *indented])


def spans(text: str) -> list[str]:
    """The code spans of a page, between single backquotes."""
    return re.findall(r"`([^`\n]+)`", FENCE.sub("", text))


def make_targets(text: str) -> set[str]:
    words = [line.split() for line in [*shell_lines(text).splitlines(), *spans(text)]]
    return {
        word for line in words if line[:1] == ["make"] for word in line[1:2] if re.fullmatch("[a-z-]+", word)
    }


def links(text: str) -> list[str]:
    """The relative targets of links and images."""
    targets = re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", text))
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors(text: str) -> set[str]:
    """GitHub's anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pages
def test_every_command_of_a_page_names_what_exists(page: Path) -> None:
    for call in calls(shell_lines(page.read_text("utf-8"))):
        check_call(call)


@pages
def test_every_option_that_the_prose_gives_a_command_exists(page: Path) -> None:
    """A span like `turret export RUN --bundles DIR` has placeholders for values; only names are checked."""
    for span in spans(page.read_text("utf-8")):
        known = [name for name in commands() if f"{span} ".startswith(f"turret {name} ")]
        assert known or not re.match(r"turret (?!data\b)[a-z]", span), span
        for name in known:
            options = {option for parameter in commands()[name].params for option in parameter.opts}
            options.add("--help")
            assert set(re.findall(r"(?<=\s)--?[a-z][\w-]*", span)) <= options, span


@pages
def test_every_make_target_of_a_page_exists(page: Path) -> None:
    known = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert make_targets(page.read_text("utf-8")) <= known


@pages
def test_every_relative_link_of_a_page_leads_somewhere(page: Path) -> None:
    for link in links(page.read_text("utf-8")):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text("utf-8")), link


@pages
def test_every_path_and_module_of_the_repository_that_a_page_names_exists(page: Path) -> None:
    for span in spans(page.read_text("utf-8")):
        path = re.fullmatch(r"(?:data|tower|training|service|tests|benchmarks|docs|deploy)/[\w./-]+", span)
        assert not path or span.startswith(MADE) or (ROOT / span).exists(), span
        for module in re.findall(r"python -m ((?:turret|benchmarks|tests)[\w.]*)", span):
            assert find_spec(module), span


def test_the_readme_shows_every_command_and_both_make_targets() -> None:
    """A reader who types only its commands runs every step from a log to recommendations."""
    text = (ROOT / "README.md").read_text("utf-8")
    shown = {
        name for name in commands() for call in calls(shell_lines(text)) if " ".join(call).startswith(name)
    }
    assert shown >= {"data prepare", "train", "evaluate", "export", "serve", "recommend", "activate"}
    assert {"demo", "test"} <= make_targets(text)


PAGE = """
# Some page: of *it*

```sh
turret train --run x \\
  --sets a='b;c'  # comment
FOO=1 .venv/bin/turret export x > log && turret versions | cat
curl -d '{"a": 1}' localhost
```

```console
$ turret data describe
turret is an output here
```

    docker compose run --rm trainer data fetch movielens-1m

Say `turret nothing` or `make all`, see [it](#some-page-of-it) and [that](nowhere.md), not [this](http://x).
"""


def test_the_pages_are_read_as_a_reader_reads_them() -> None:
    """A check of the checks: an unreadable page would pass them."""
    assert calls(shell_lines(PAGE)) == [
        ["train", "--run", "x", "--sets", "a=b;c"],
        ["export", "x"],
        ["versions"],
        ["data", "describe"],
        ["data", "fetch", "movielens-1m"],
    ]
    assert spans(PAGE) == ["turret nothing", "make all"]
    assert make_targets(PAGE) == {"all"}
    assert links(PAGE) == ["#some-page-of-it", "nowhere.md"]
    assert anchors(PAGE) == {"some-page-of-it"}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["trian"], "trian"),
        (["data", "no"], "no"),
        (["train", "--sets", "a=b"], "No such option"),
        (["activate"], "Missing"),
    ],
)
def test_a_command_that_does_not_exist_is_noticed(words: list[str], complaint: str) -> None:
    with pytest.raises(Exception, match=complaint):
        check_call(words)
