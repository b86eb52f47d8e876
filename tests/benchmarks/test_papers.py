import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.paper_figures.contract import BOTEV, Claim, Measurement, PaperFigure, Result, Results
from benchmarks.paper_figures.registry import FIGURES
from benchmarks.papers import draw, judged, measure
from benchmarks.papers_page import PAGE, papers_section
from benchmarks.protocol import Options


class Counted:
    """A measurement of two runs that counts how often each is made; the second may fail."""

    def __init__(self) -> None:
        self.made = {"first": 0, "second": 0}
        self.fails = False
        self.measurement = Measurement("counted", lambda scale: {"first": self.first, "second": self.second})

    def first(self) -> Result:
        self.made["first"] += 1
        return {"value": self.made["first"]}

    def second(self) -> Result:
        if self.fails:
            raise KeyboardInterrupt
        self.made["second"] += 1
        return {"value": 7}

    def figure(self, name: str, agrees: bool) -> PaperFigure:
        """A figure with one statement, that holds or doesn't."""

        def claims(results: Results) -> list[Claim]:
            return [Claim("It is 7.", f"It is {results['second']['value']}.", agrees, "It varies.")]

        def plot(results: Results, path: Path) -> None:
            path.touch()

        return PaperFigure(
            name=name,
            paper=BOTEV,
            title=f"Figure {name}: a value",
            readable="all of them.",
            measurement=self.measurement,
            setting=lambda results: "One size.",
            claims=claims,
            table=lambda results: ["| value |", "|---|", f"| {results['first']['value']} |"],
            plot=plot,
            plot_name=f"{name}.svg",
        )


def asked(quick: bool = False, resume: bool = False, figure: list[str] | None = None) -> Options:
    """The options of a command line."""
    return Options(Path("data"), quick, False, argparse.Namespace(resume=resume, figure=figure))


def test_two_figures_read_the_same_runs(tmp_path: Path) -> None:
    """Which are made once, and kept in the file."""
    counted = Counted()
    figures = (counted.figure("a", True), counted.figure("b", False))
    runs = measure(asked(), tmp_path / "papers.json", figures)
    assert counted.made == {"first": 1, "second": 1}
    kept = json.loads((tmp_path / "papers.json").read_text("utf-8"))["runs"]
    assert kept == runs
    assert runs["counted"]["second"]["value"] == 7
    results = judged(figures, runs)
    assert results["agree"] == {"a": True, "b": False}
    assert results["differences"] == {"b": "It is 7. It varies."}
    assert set(results["figures"]) == {"a", "b"}


def test_an_interrupted_run_is_resumed(tmp_path: Path) -> None:
    """The runs that ended are kept; without --resume all are made again."""
    counted = Counted()
    figures, path = (counted.figure("a", True),), tmp_path / "papers.json"
    counted.fails = True
    with pytest.raises(KeyboardInterrupt):
        measure(asked(), path, figures)
    counted.fails = False
    measure(asked(resume=True), path, figures)
    assert counted.made == {"first": 1, "second": 1}
    measure(asked(), path, figures)
    assert counted.made == {"first": 2, "second": 2}


def test_one_figure_is_measured_again_and_the_others_are_kept(tmp_path: Path) -> None:
    """--figure NAME."""
    one, other = Counted(), Counted()
    other.measurement = Measurement("other", other.measurement.runs)
    figures, path = (one.figure("a", True), other.figure("b", True)), tmp_path / "papers.json"
    measure(asked(), path, figures)
    runs = measure(asked(figure=["b"]), path, figures)
    assert (one.made["first"], other.made["first"]) == (1, 2)
    assert runs["counted"]["first"]["value"] == 1
    assert runs["other"]["first"]["value"] == 2


def test_a_figure_that_was_interrupted_is_not_judged(tmp_path: Path) -> None:
    """Where another one is measured next."""
    one, other = Counted(), Counted()
    other.measurement = Measurement("other", other.measurement.runs)
    figures, path = (one.figure("a", True), other.figure("b", True)), tmp_path / "papers.json"
    one.fails = True
    with pytest.raises(KeyboardInterrupt):
        measure(asked(), path, figures)
    runs = measure(asked(figure=["b"]), path, figures)
    assert set(runs) == {"other"}
    assert set(judged(figures, runs)["figures"]) == {"b"}


def test_a_quick_run_keeps_nothing(tmp_path: Path) -> None:
    """Its figures are no claims."""
    counted = Counted()
    runs = measure(asked(quick=True), tmp_path / "papers.json", (counted.figure("a", True),))
    assert runs["counted"]["first"]["value"] == 1
    assert not list(tmp_path.iterdir())


def test_the_page_shows_every_figure_that_is_measured() -> None:
    """With its statements and its plot, and names the others; a reason stands wherever one disagrees."""
    results: dict[str, Any] = json.loads((PAGE.parents[1] / "benchmarks/results/papers.json").read_text())
    measured = [figure for figure in FIGURES if figure.measurement.name in results["runs"]]
    assert set(results["figures"]) == set(results["agree"]) == {figure.name for figure in measured}
    fresh = judged(FIGURES, results["runs"])
    assert {name: results[name] for name in fresh} == fresh
    section = papers_section(results)
    for figure in FIGURES:
        assert (f"`{figure.name}`" in section.partition("\n## ")[0]) == (figure not in measured)
    for figure in measured:
        assert f"### {figure.title}" in section
        assert (PAGE.parents[1] / "benchmarks/results/papers" / figure.plot_name).stat().st_size > 0
        assert results["agree"][figure.name] == (figure.name not in results["differences"])
        for claim in results["figures"][figure.name]:
            assert claim["agrees"] or claim["reason"]


@pytest.mark.nightly
def test_the_plots_are_drawn_from_the_results(tmp_path: Path) -> None:
    """Each into its file, from the committed runs."""
    results = json.loads((PAGE.parents[1] / "benchmarks/results/papers.json").read_text("utf-8"))
    draw(results["runs"], tmp_path)
    measured = [figure for figure in FIGURES if figure.measurement.name in results["runs"]]
    assert {path.name for path in tmp_path.iterdir()} == {figure.plot_name for figure in measured}
