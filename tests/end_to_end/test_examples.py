"""The notebooks of examples/ run from their first cell to their last."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.support.tools import require

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def code_of(notebook: Path) -> str:
    """The code cells of a notebook as one script."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs_and_compiles(notebook: Path) -> None:
    for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
        assert not cell.get("outputs"), "clear the outputs before a commit"
    compile(code_of(notebook), notebook.name, "exec")


@pytest.mark.nightly
@pytest.mark.process
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    if notebook.stem == "movielens":
        require("grouplens")
    script = tmp_path / "notebook.py"
    script.write_text(code_of(notebook), "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
