"""Charts of the loss, the validation metric and the learning rate."""

from collections.abc import Sequence

from turret.training.inspection.curves import Curve, Curves
from turret.training.markup.elements import Html, element
from turret.training.markup.line_chart import Line, Mark, line_chart

STYLES = ("c1", "c2", "c3", "c4", "c5", "c6")


def curve_charts(curves: Curves) -> Html:
    """The curves of one run, with the step of the model that was kept."""
    marks = _marks(curves, "c1", f"epoch {curves.best_epoch}: {curves.best or 0:.4f}")
    loss = [_line("batches", curves.loss, "soft"), _line("mean of an epoch", curves.epoch_loss, "c1")]
    charts = [
        line_chart("Training loss", loss, legend=True),
        line_chart(f"Validation {curves.metric}", [_line(curves.metric, curves.validation, "c1")], marks),
        line_chart("Learning rate", [_line("learning rate", curves.learning_rate, "c1")]),
        line_chart("Examples per second", [_line("examples per second", curves.throughput, "c1")]),
    ]
    return element("div", charts, class_="charts")


def compared_charts(runs: Sequence[tuple[str, Sequence[Curves]]]) -> Html:
    """The curves of several runs over one another; a run of several seeds has one curve a seed."""
    styled = [
        (label, own, STYLES[number % len(STYLES)])
        for number, (label, curves) in enumerate(runs)
        for own in curves
    ]
    loss = [_line(label, own.epoch_loss, style) for label, own, style in styled]
    # Metrics of another kind have another scale.
    metric = styled[0][1].metric
    validated = [(label, own, style) for label, own, style in styled if own.metric == metric]
    lines = [_line(label, own.validation, style) for label, own, style in validated]
    marks = [mark for _, own, style in validated for mark in _marks(own, style, "")]
    charts = [
        line_chart("Training loss, mean of an epoch", loss, legend=True),
        line_chart(f"Validation {metric}", lines, marks, legend=True),
    ]
    return element("div", charts, class_="charts")


def _line(label: str, curve: Curve, style: str) -> Line:
    return Line(label, curve.steps, curve.values, style)


def _marks(curves: Curves, style: str, label: str) -> list[Mark]:
    if curves.best_step is None or curves.best is None:
        return []
    return [Mark(curves.best_step, curves.best, label, style)]
