"""`turret report samplers`: measure, store, plot and print."""

from collections import defaultdict
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from turret.training.errors import TrainingError
from turret.training.report.samplers import ReportRequest, SamplerReport
from turret.training.report.table import known_bias, report_table
from turret.training.run import SAMPLERS, SAMPLERS_PICTURE, Run, replace_json

# B x K scores of a step.
_MOST_SCORES = 2**28
_FORMATS = (".png", ".svg", ".pdf")
_MARKERS = "osD^v<>Pp*hX"
# Lower limit of the logarithmic axis.
_LEAST_BIAS = 1e-4


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
    negatives, batch_size = max(request.negatives), run.experiment.training.batch_size
    if negatives * batch_size > _MOST_SCORES:
        raise TrainingError(
            f"--negatives {negatives}: the scores of {batch_size} examples a step would not fit into memory; "
            f"give at most {max(1, _MOST_SCORES // batch_size)}."
        )
    picture = output or folder / SAMPLERS_PICTURE
    if picture.suffix.lower() not in _FORMATS:
        raise TrainingError(f"--output {picture}: the name must end in .png, .svg or .pdf.")
    report = SamplerReport(run, run.open_data(data), request).measure()
    text = replace_json(folder / SAMPLERS, report)
    plot_report(report, picture)
    if as_json:
        print(text)
    else:
        print(f"Plot: {picture}. Data: {folder / SAMPLERS}.")
        print(report_table(report, show_all))


def plot_report(report: dict[str, Any], path: Path) -> None:
    """Plot the bias against cost and against the number of candidates, in the format of the suffix."""
    figure = Figure(figsize=(13.0, 6.0), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in report["samplers"]:
        lines[row["sampler"]].append(row)
    for axes, against in ((left, "milliseconds"), (right, "candidates")):
        for number, (name, rows) in enumerate(lines.items()):
            style: dict[str, Any] = {
                "color": f"C{number % 10}",
                "marker": _MARKERS[number % len(_MARKERS)],
                "markersize": 5,
            }
            biases = [max(_LEAST_BIAS, known_bias(row)) for row in rows]
            line = "-" if number < 10 else "--"
            axes.plot([row[against] for row in rows], biases, linestyle=line, label=name, **style)
            # A bias within its error of zero is a hollow marker at its upper bound.
            unsure = [
                (row[against], bias) for row, bias in zip(rows, biases, strict=True) if row["bias_low"] <= 0.0
            ]
            axes.plot(*zip(*unsure, strict=True), linestyle="none", markerfacecolor="white", **style)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.grid(visible=True, which="major", alpha=0.3)
    left.axvline(report["full_softmax"]["milliseconds"], color="black", linewidth=1, linestyle=":")
    left.set_xlabel("ms a step (dotted: the full softmax, which has no bias)")
    right.set_xlabel("candidates K")
    left.set_ylabel("relative bias of the gradient (hollow: at most)")
    left.set_title(f"bias against cost, {report['items']:,} items, batches of {report['batch_size']:,}")
    right.set_title("bias against the number of candidates")
    figure.legend(*left.get_legend_handles_labels(), loc="outside right center", fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    # No date: the same report gives the same file.
    dateless = {"Date": None} if path.suffix.lower() == ".svg" else None
    figure.savefig(path, dpi=150, metadata=dateless)
