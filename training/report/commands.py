"""`turret report samplers`: measure, store and print."""

from pathlib import Path

from turret.training.errors import TrainingError
from turret.training.figures import check_format
from turret.training.report.plot import plot_report
from turret.training.report.samplers import ReportRequest, SamplerReport
from turret.training.report.table import report_table
from turret.training.run import SAMPLERS, SAMPLERS_PICTURE, Run, replace_json

# B x K scores of a step.
_MOST_SCORES = 2**28


def report_samplers(
    folder: Path,
    data: Path | None,
    request: ReportRequest,
    output: Path | None,
    as_json: bool,
    show_all: bool = False,
) -> None:
    """Measure the samplers on a run, store JSON and a plot in its folder, and print tables.

    Raises:
        TrainingError: the sizes exceed memory, the run can't be measured, or `output` has an unknown format.
    """
    run = Run.read(folder)
    _check(max(request.negatives), run.experiment.training.batch_size)
    picture = output or folder / SAMPLERS_PICTURE
    check_format(picture, "--output")
    report = SamplerReport(run, run.open_data(data), request).measure()
    text = replace_json(folder / SAMPLERS, report)
    plot_report(report, picture)
    if as_json:
        print(text)
    else:
        print(f"Plot: {picture}. Data: {folder / SAMPLERS}.")
        print(report_table(report, show_all))


def _check(negatives: int, batch_size: int) -> None:
    most = max(1, _MOST_SCORES // batch_size)
    if negatives > most:
        raise TrainingError(
            f"--negatives {negatives}: the scores of {batch_size} examples a step would not fit into memory; "
            f"give at most {most}."
        )
