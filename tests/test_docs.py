"""README.md, CONTRIBUTING.md and docs/*.md name existing things only, and their commands and examples run."""

import doctest
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.command_line import calls, check_call, commands
from tests.support.places import ROOT
from turret.data.errors import TurretError
from turret.tower.config import ScoringConfig
from turret.training import samplers
from turret.training.config.experiment import ExperimentConfig, load_experiment
from turret.training.objectives.arguments import GivenStatistics
from turret.training.samplers.core.contract import DrawContext, drawn_with_replacement
from turret.training.samplers.core.settings import BuildContext
from turret.training.tuning.space import load_space

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MADE = "deploy/secrets"  # by deploy/setup
SHELL = ("sh", "console", "bash", "shell")


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
    lines = "\n".join([shell_lines(text), *spans(text)])
    return set(re.findall(r"^make ([a-z-]+)(?!\S)", lines, re.MULTILINE))


def anchors(text: str) -> set[str]:
    """GitHub's anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def wrong_commands(text: str) -> Iterator[str]:
    """A span like `turret export RUN --bundles DIR` has placeholders for values: only its names are read."""
    for call in calls(shell_lines(text)):
        try:
            check_call(call)
        except Exception as error:
            yield f"turret {' '.join(call)}: {error or type(error).__name__}"
    for span in spans(text):
        known = [name for name in commands() if f"{span} ".startswith(f"turret {name} ")]
        if not known and re.match(r"turret (?!data\b)[a-z]", span):
            yield f"{span}: no such command"
        for name in known:
            options = {option for parameter in commands()[name].params for option in parameter.opts}
            for option in set(re.findall(r"(?<=\s)--?[a-z][\w-]*", span)) - options - {"--help"}:
                yield f"{span}: no option {option}"
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    yield from (f"make {target}: no such target" for target in make_targets(text) - set(targets))


def wrong_links(text: str, folder: Path) -> Iterator[str]:
    """Relative links and their anchors, and the paths and modules of the repository in code spans."""
    for link in re.findall(r"\]\((?![a-z]+:)([^)\s]+)\)", FENCE.sub("", text)):
        file, _, anchor = link.partition("#")
        target = folder / file
        if file and not target.exists():
            yield f"{link}: no such file"
        elif anchor and anchor not in anchors(target.read_text("utf-8") if file else text):
            yield f"{link}: no such heading"
    for span in spans(text):
        path = re.fullmatch(r"(?:data|tower|training|service|tests|benchmarks|docs|deploy)/[\w./-]+", span)
        if path and not span.startswith(MADE) and not (ROOT / span).exists():
            yield f"{span}: no such path"
        for module in re.findall(r"python -m ((?:turret|benchmarks|tests)[\w.]*)", span):
            if not find_spec(module):
                yield f"{span}: no such module"


def wrong_settings(text: str, folder: Path) -> Iterator[str]:
    """A snippet with a table of an experiment is one, or it is a space of settings for `turret tune`."""
    for language, snippet in FENCE.findall(text):
        if language == "toml" and tomllib.loads(snippet).keys() & ExperimentConfig.model_fields.keys():
            try:
                if "choices = [" in snippet:
                    (folder / "space.toml").write_text(snippet)
                    load_space(folder / "space.toml", load_experiment("youtubednn"), ())
                else:
                    ExperimentConfig.model_validate(tomllib.loads(snippet))
            except (ValueError, TurretError) as error:
                yield f"{snippet}: {error}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_only_what_exists(page: Path, tmp_path: Path) -> None:
    text = page.read_text("utf-8")
    assert [*wrong_commands(text), *wrong_links(text, page.parent), *wrong_settings(text, tmp_path)] == []


def test_the_readme_shows_every_step_and_both_make_targets() -> None:
    """A reader who types only its commands gets from a log to recommendations."""
    text = (ROOT / "README.md").read_text("utf-8")
    lines = [" ".join(call) for call in calls(shell_lines(text))]
    shown = {name for name in commands() for line in lines if line.startswith(name)}
    assert shown >= {"data prepare", "train", "evaluate", "export", "serve", "recommend", "activate"}
    assert {"demo", "test"} <= make_targets(text)


def sampler_inputs() -> dict[str, object]:
    """The inputs of the examples of samplers, as the docstring of `SamplerSettings` has them."""
    falling, rows = np.arange(10, 0, -1), np.arange(10)
    statistics = GivenStatistics(10, counts=falling, following=(rows[:-1], rows[1:]))
    vectors = torch.stack([torch.linspace(0.0, 1.0, 10), torch.linspace(1.0, 0.0, 10)], dim=1)
    positives = torch.tensor([5, 6])
    return {
        "samplers": samplers,
        "catalog": BuildContext(statistics, ScoringConfig(kind="dot"), 0, torch.device("cpu")),
        "vectors": vectors,
        "users": torch.eye(2),
        "positives": positives,
        "step": DrawContext(
            random=np.random.default_rng(0),
            last=torch.tensor([4, 5]),
            positive_vectors=vectors[positives],
            encode=vectors.__getitem__,
            negatives=torch.tensor([[1, 2, -1], [3, 4, 9]]),
        ),
    }


def test_the_examples_of_docstrings_hold() -> None:
    """Each prints what it says."""
    shared = {"torch": torch, "drawn_with_replacement": drawn_with_replacement, **sampler_inputs()}
    packages = ("data", "tower", "training", "service")
    paths = (path for package in packages for path in (ROOT / package).rglob("*.py"))
    shown = [path.relative_to(ROOT) for path in paths if ">>> " in path.read_text("utf-8")]
    modules = [import_module(".".join(("turret", *path.with_suffix("").parts))) for path in shown]
    found = [doctest.testmod(module, extraglobs=shared) for module in modules]
    assert sum(one.failed for one in found) == 0
    assert sum(one.attempted for one in found) > 40
