"""The plots of the pages; `python -m benchmarks.plots` draws those of quality, indexes and scale again."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.harness import QUALITY, RESULTS, kept, result
from turret.plan import Figures, derived_sizes, load_figures

Row = dict[str, Any]
INDEX_TITLES = {
    "ml-1m": "ML-1M, `youtubednn`",
    "gowalla": "Gowalla, `ids`",
    "million": "drawn like Gowalla's",
}
DIMENSIONS, HISTORY = (64, 128), 50
ITEMS = np.logspace(4, 7.5, 60)


@contextmanager
def figure(
    path: Path, size: tuple[float, float], panels: int = 1, share_y: bool = True
) -> Iterator[list[Axes]]:
    """Panels to draw into, written to `path` at the end; the same figures give the same file."""
    with matplotlib.rc_context({"svg.hashsalt": "turret", "svg.fonttype": "none"}):
        drawing = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(drawing)
        columns = min(3, panels)
        axes = list(drawing.subplots(-(-panels // columns), columns, squeeze=False, sharey=share_y).flat)
        yield axes[:panels]
        for panel in axes[:panels]:
            panel.grid(visible=True, alpha=0.3)
        for panel in axes[panels:]:
            panel.set_visible(False)
        drawing.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {})


def curves(
    panels: Mapping[str, Mapping[str, Sequence[float]]],
    labels: tuple[str, str],
    path: Path,
    points: Sequence[float],
    scales: tuple[str, str] = ("linear", "linear"),
) -> None:
    """Draw a panel for each group of curves over `points`; curves called `exact` are black."""
    columns = min(3, len(panels))
    with figure(path, (4.6 * columns, 3.9 * -(-len(panels) // columns)), len(panels)) as axes:
        for panel, (title, lines) in zip(axes, panels.items(), strict=True):
            for name, values in lines.items():
                style: dict[str, Any] = {"marker": "."}
                if name.startswith("exact"):
                    style = {"color": "black", "linestyle": "-" if name == "exact" else "--"}
                panel.plot(points[: len(values)], values, label=name, **style)
            panel.set(title=title, xlabel=labels[0], ylabel=labels[1], xscale=scales[0], yscale=scales[1])
            panel.legend(fontsize="xx-small")


def quality(set_name: str) -> None:
    """Draw the kept seeds of a set: quality over the time spent, or over the periods of a test by time."""
    rows = [row for row in kept(set_name) if row.get("curve") or row.get("periods")]
    with figure(QUALITY / f"{set_name}.svg", (8.0, 4.5)) as (panel,):
        (_training if rows[0].get("curve") else _periods)(panel, rows)
        panel.set_title(set_name)
        panel.legend(fontsize="small")


def _training(panel: Axes, rows: Sequence[Row]) -> None:
    """Draw the validation metric after every epoch: a colour for each experiment, a line for each seed."""
    names = list(dict.fromkeys(row["experiment"] for row in rows))
    metrics = {row["configuration"]["training"]["metric"] for row in rows}
    labelled = set()
    for row in rows:
        name = row["experiment"]
        _, seconds, values = zip(*row["curve"], strict=True)
        label = name if len(metrics) == 1 else f"{name}, {row['configuration']['training']['metric']}"
        panel.plot(
            [elapsed / 60 for elapsed in seconds],
            values,
            color=f"C{names.index(name)}",
            marker=".",
            linewidth=1,
            label=None if name in labelled else label,
        )
        labelled.add(name)
    panel.set_xlabel("minutes of training and validation, a line a seed")
    panel.set_ylabel(f"{' or '.join(sorted(metrics)).upper()} on validation")


def _periods(panel: Axes, rows: Sequence[Row]) -> None:
    """Draw every model over the periods of the test: a line for each seed of Turret, one for the others."""
    first = rows[0]["periods"]
    metric = next(name for name in first[0] if "@" in name)
    lines = [
        ("Turret", row["periods"], None if number else f"Turret, {row['experiment']}", "C0", 1.8, "-")
        for number, row in enumerate(rows)
    ]
    others = [name for name in first[0][metric] if name != "Turret"]
    lines += [(name, first, name, f"C{number}", 1, "--") for number, name in enumerate(others, start=1)]
    for model, periods, label, color, width, style in lines:
        times: list[Any] = [datetime.fromisoformat(period["begins"]) for period in periods]
        values = [period[metric][model] for period in periods]
        panel.plot(times, values, marker=".", label=label, color=color, linewidth=width, linestyle=style)
    panel.set_ylabel(metric.upper())
    panel.set_xlabel("time (UTC)")
    panel.tick_params(axis="x", labelrotation=30)


def fastest_calls(index_set: Row) -> list[Row]:
    """A set's sides for the best 10, the fastest first; a peer counts by the faster of its two calls."""
    fastest: dict[str, Row] = {}
    for call in sorted(index_set["at_10"]["sides"], key=lambda call: -call["queries_per_second"]):
        fastest.setdefault(call["side"], call)
    return list(fastest.values())


def index(figures: Row) -> None:
    """Draw recall@10 against queries/s: sides at their fastest settings, and a line at the target recall."""
    count = len(figures["sets"])
    with figure(RESULTS / "index.svg", (4.5 * count, 4.5), count, share_y=False) as panels:
        for panel, (name, index_set) in zip(panels, figures["sets"].items(), strict=True):
            for call in fastest_calls(index_set):
                where = call["queries_per_second"], call["recall"]
                panel.plot(*where, "x" if call["is_peer"] else "o", color="C1" if call["is_peer"] else "C0")
                panel.annotate(call["side"], where, (4, 4), textcoords="offset points", fontsize="x-small")
            panel.axhline(figures["target"], color="black", linewidth=0.8)
            title = f"{INDEX_TITLES[name]}, {index_set['items']:,} items"
            panel.set(xscale="log", xlabel="queries/s, one thread", title=title)
            panel.margins(x=0.25)
        panels[0].set_ylabel("recall@10")


def scale(figures: Figures, training: Row, service: Row) -> None:
    """Draw memory by items: lines are planned (dashed beyond the measured catalogs), points measured."""
    runs = [run for run in training["points"]["youtubednn"]["runs"] if run["history"] == HISTORY]
    rows = service["points"]
    parts = {
        "training (youtubednn)": ("training.youtubednn.memory", runs, [run["peak_mb"] for run in runs]),
        "index": ("index.memory", rows, [row["index"]["peak_mb"] for row in rows]),
        "service, one worker": (
            "service.memory",
            rows,
            [row["service"]["sqlite"]["resident_mb"] for row in rows],
        ),
    }
    with figure(RESULTS / "scale.svg", (4 * len(parts), 3.8), len(parts)) as panels:
        for panel, (title, (quantity, sizes, megabytes)) in zip(panels, parts.items(), strict=True):
            most = figures.quantities[quantity].largest["items"]
            for color, dimension in enumerate(DIMENSIONS):
                points = [
                    (size["items"], mb / 1e3)
                    for size, mb in zip(sizes, megabytes, strict=True)
                    if size["dimension"] == dimension
                ]
                panel.plot(*zip(*points, strict=True), "o", color=f"C{color}")
                for style, part in (("-", ITEMS[most >= ITEMS]), ("--", ITEMS[most <= ITEMS])):
                    at = [derived_sizes(items=items, dimension=dimension, history=HISTORY) for items in part]
                    planned = [figures.at(quantity, size) / 1e9 for size in at]
                    label = f"dimension {dimension}" if style == "-" else None
                    panel.plot(part, planned, style, color=f"C{color}", label=label)
            panel.set(xscale="log", yscale="log", xlabel="items", title=title)
        panels[0].set_ylabel("GB of memory")
        panels[0].legend(fontsize="small")


def main() -> None:
    """Draw the plots of the pages."""
    for path in QUALITY.glob("*.svg"):
        quality(path.stem)
    index(result("index"))
    scale(load_figures(), result("scale_training"), result("scale_service"))


if __name__ == "__main__":
    main()
