"""The notebooks of examples/: their outputs are stored, fit the text, and come again in a new run."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.notebooks import LARGEST, NotebookError, executed, main
from tests.support.places import ROOT
from tests.support.tools import require

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
Cell = dict[str, Any]
# A number of an output: its code cell, its line, and its place among the numbers of the line.
Place = tuple[int, int, int]
# Sums differ in their last bits between processors and numbers of threads, and a training amplifies it.
TOLERANCE = 0.1

every_notebook = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)


def cells_of(path: Path) -> list[Cell]:
    cells: list[Cell] = json.loads(path.read_text("utf-8"))["cells"]
    return cells


def numbers(cells: list[Cell]) -> dict[Place, str]:
    """The numbers that code cells have printed, those of the last cell first."""
    return {
        (cell["execution_count"], line, place): number
        for cell in reversed(cells)
        for output in cell.get("outputs", [])
        for line, text in enumerate(output.get("text", []))
        for place, number in enumerate(re.findall(r"\d+(?:\.\d+)?", text))
    }


def named_figures(cells: list[Cell]) -> dict[Place, str]:
    """The figures that the text names in bold, each with its place in the nearest output above."""
    figures = {}
    for position, cell in enumerate(cells):
        above = numbers(cells[:position])
        bold = re.findall(r"\*\*(\d[\d.]*)\*\*", "".join(cell["source"]))
        for figure in bold if cell["cell_type"] == "markdown" else ():
            place = next((place for place, number in above.items() if number == figure), None)
            assert place is not None, f"no output above prints {figure}, which the text names"
            figures[place] = figure
    return figures


@every_notebook
def test_a_notebook_is_stored_as_a_whole_run_has_left_it(notebook: Path) -> None:
    text = notebook.read_text("utf-8")
    cells = [cell for cell in cells_of(notebook) if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {output["output_type"] for cell in cells for output in cell["outputs"]}
    assert kinds <= {"stream", "display_data"}
    assert len(text.encode()) <= LARGEST
    assert not re.search(r"/(?:tmp|home|root|Users)/", text), "an output has a path of one machine"


@every_notebook
def test_the_text_names_figures_that_the_outputs_have(notebook: Path) -> None:
    assert len(named_figures(cells_of(notebook))) >= 2


@pytest.mark.nightly
@pytest.mark.process
@every_notebook
def test_a_new_run_has_the_figures_that_the_text_names(notebook: Path, tmp_path: Path) -> None:
    if notebook.stem == "movielens" and not os.environ.get("TURRET_DATA"):
        require("grouplens")
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.notebooks", notebook.stem, "--to", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    fresh = numbers(cells_of(tmp_path / notebook.name))
    figures = named_figures(cells_of(notebook))
    measured = {place: float(fresh.get(place, "nan")) for place in figures}
    expected = {place: float(figure) for place, figure in figures.items()}
    assert measured == pytest.approx(expected, rel=TOLERANCE)


# ---- The script that executes them


def notebook_of(*sources: str) -> str:
    code: Cell = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}
    return json.dumps({"cells": [{**code, "source": [source]} for source in sources], "nbformat": 4})


def test_a_cell_has_its_print_the_value_of_its_last_expression_and_its_figures() -> None:
    text = notebook_of(
        "number = 3\nprint('three')\nnumber + 1",
        "import matplotlib.pyplot as plt\nplt.figure(figsize=(1, 1))\nnumber = 5",
        "number",
    )
    printed, drawn, later = json.loads(executed(text, "small"))["cells"]
    assert printed["outputs"] == [{"output_type": "stream", "name": "stdout", "text": ["three\n", "4\n"]}]
    (picture,) = drawn["outputs"]
    assert picture["data"]["image/png"].startswith("iVBOR"), "the first bytes of a PNG in base64"
    assert (later["outputs"][0]["text"], later["execution_count"]) == (["5\n"], 3)


def test_the_same_figure_gives_the_same_bytes() -> None:
    text = notebook_of("import matplotlib.pyplot as plt\nlines = plt.plot([1, 3, 2])")
    assert executed(text, "small") == executed(text, "small")


def test_a_cell_that_fails_is_named_with_its_error() -> None:
    with pytest.raises(NotebookError, match=r"^small\.ipynb: code cell 2 failed: KeyError: 'price'$"):
        executed(notebook_of("fields = {}", "fields['price']"), "small")


@pytest.mark.process
def test_a_service_ends_with_the_cell_that_fails(tmp_path: Path) -> None:
    start = "import subprocess\nservice = subprocess.Popen(['sleep', '600'])"
    keep = f"import pathlib\npathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(service.pid))"
    with pytest.raises(NotebookError, match="code cell 3 failed"):
        executed(notebook_of(start, keep, "1 / 0"), "small")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_too_large_outputs_are_refused() -> None:
    with pytest.raises(NotebookError, match=r"^small\.ipynb would have [\d,]+ bytes; at most 300,000$"):
        executed(notebook_of(f"print('x' * {LARGEST})"), "small")


def test_an_unknown_name_is_refused_with_the_names_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["movies"])
    assert "no notebook 'movies': give one of losses, movielens," in capsys.readouterr().err
