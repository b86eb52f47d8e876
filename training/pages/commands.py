"""`turret report run` and `turret report compare`: make a page, write it, and print its path."""

from collections.abc import Sequence
from pathlib import Path

from turret.training.evaluation.evaluation import EvaluatedPart
from turret.training.inspection.compared import compared
from turret.training.markup.document import check_output, write_page
from turret.training.pages.compare_page import compare_page
from turret.training.pages.run_page import run_page
from turret.training.run import REPORT_PAGE, Run

COMPARED = Path("var") / REPORT_PAGE


def report_run(
    folder: Path,
    data: Path | None,
    part: EvaluatedPart,
    k: int | None,
    baselines: Sequence[str],
    output: Path | None,
) -> Path:
    """Write the page about one run to `output` (RUN/report.html) and print its path.

    Raises:
        TrainingError: the run can't be read or evaluated, has no metrics at `k`, or `output` can't be
            written.
    """
    run, path = Run.read(folder), output or folder / REPORT_PAGE
    check_output(path)
    write_page(path, run_page(run, run.open_data(data), part, k, baselines))
    print(path)
    return path


def report_compare(
    folders: Sequence[Path], data: Path | None, part: EvaluatedPart, k: int | None, output: Path | None
) -> Path:
    """Write the page about several runs to `output` (var/report.html) and print its path.

    Raises:
        TrainingError: the runs can't be compared or evaluated, have no metrics at `k` in common, or `output`
            can't be written.
    """
    path = output or COMPARED
    check_output(path)
    write_page(path, compare_page(compared(folders, data, part), k))
    print(path)
    return path
