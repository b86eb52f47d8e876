"""Run the notebooks of `examples/` and write their outputs into them: `python -m benchmarks.notebooks`.

Names run some of them, and `--to DIR` writes the executed notebooks there instead. Cells are executed by this
Python and not by a kernel of Jupyter, whose 25 packages nothing else here needs: a cell is Python without
magics, and its outputs are the printed text and the figures of matplotlib. `TURRET_DATA` names the unpacked
MovieLens 100K where GroupLens can't be reached.
"""

import argparse
import ast
import base64
import io
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import chdir, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt

EXAMPLES = Path(__file__).parent.parent / "examples"
DOTS_PER_INCH = 72
# Above this a notebook is slow to show and heavy to clone.
LARGEST = 300_000
Cell = dict[str, Any]


class NotebookError(Exception):
    """A cell failed, or the outputs are too large; the sentence names the notebook and the cell."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Execute notebooks one after the other, each in a process and a temporary folder of its own."""
    stored = {path.stem: path for path in sorted(EXAMPLES.glob("*.ipynb"))}
    parser = argparse.ArgumentParser(prog="python -m benchmarks.notebooks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(stored)}; by default all")
    parser.add_argument("--to", type=Path, default=EXAMPLES, metavar="DIR", help="by default examples/")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - stored.keys():
        parser.error(f"no notebook {min(unknown)!r}: give one of {', '.join(stored)}")
    if source := os.environ.get("TURRET_DATA"):  # the cells run in another folder
        os.environ["TURRET_DATA"] = str(Path(source).resolve())
    spawn = multiprocessing.get_context("spawn")
    # A process for each notebook, so that none depends on the modules and the randomness of another.
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
        for name in given.names or stored:
            try:
                text = pool.submit(executed, stored[name].read_text("utf-8"), name).result()
            except NotebookError as error:
                sys.exit(str(error))
            (given.to / f"{name}.ipynb").write_text(text, "utf-8")
            print(f"{name}: {len(text.encode()):,} bytes", flush=True)


def executed(text: str, name: str) -> str:
    """Return the notebook with the outputs of all code cells, run from top to bottom.

    Raises:
        NotebookError: a cell raised an exception, or the outputs are larger than `LARGEST`.
    """
    matplotlib.use("agg")
    notebook = json.loads(text)
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    with tempfile.TemporaryDirectory() as folder, chdir(folder), _without_processes(names):
        for number, cell in enumerate(cells, 1):
            try:
                cell["outputs"] = _outputs("".join(cell["source"]), f"{name}, cell {number}", names)
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                raise NotebookError(f"{name}.ipynb: code cell {number} failed: {reason}") from error
            cell["execution_count"] = number
    result = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    if len(result.encode()) > LARGEST:
        raise NotebookError(f"{name}.ipynb would have {len(result.encode()):,} bytes; at most {LARGEST:,}")
    return result


@contextmanager
def _without_processes(names: Mapping[str, Any]) -> Iterator[None]:
    """End the processes among the values of `names`: a cell that fails leaves its service running."""
    try:
        yield
    finally:
        for process in names.values():
            if isinstance(process, subprocess.Popen) and process.poll() is None:
                process.terminate()
                process.wait()


def _outputs(source: str, place: str, names: dict[str, Any]) -> list[Cell]:
    """Execute a cell in `names`; return its text and its figures in the form of nbformat 4."""
    body = ast.parse(source, place)
    last = body.body.pop() if body.body and isinstance(body.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(body, place, "exec"), names)
        if last is not None:  # the mode `single` prints the value of an expression, as a notebook does
            exec(compile(ast.Interactive([last]), place, "single"), names)
    text = printed.getvalue().splitlines(keepends=True)
    streams: list[Cell] = [{"output_type": "stream", "name": "stdout", "text": text}] if text else []
    return streams + _figures()


def _figures() -> list[Cell]:
    """Return the open figures of matplotlib as pictures, and close them."""
    outputs = []
    for number in plt.get_fignums():
        picture = io.BytesIO()
        # Without the version of matplotlib, the same figure gives the same bytes.
        plt.figure(number).savefig(picture, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
        data = {"image/png": base64.b64encode(picture.getvalue()).decode() + "\n", "text/plain": ["<Figure>"]}
        outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
    plt.close("all")
    return outputs


if __name__ == "__main__":
    main()
