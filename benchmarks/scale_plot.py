"""The plot of docs/scale.md: planned and measured memory of training, index and service, by items."""

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.protocol import RESULTS
from turret.planning.figures import Figures
from turret.planning.request import derived_sizes

PATH = RESULTS / "scale.svg"
DIMENSIONS, HISTORY = (64, 128), 50
ITEMS = np.logspace(4, 7.5, 60)
MB_A_GB = 1e3


def plot(figures: Figures, training: dict[str, Any], service: dict[str, Any], path: Path = PATH) -> None:
    """Draw a panel a part: lines are planned (dashed beyond the measured catalogs), points measured."""
    runs = [
        (row["items"], row["dimension"], row["peak_mb"])
        for row in training["points"]["youtubednn"]["runs"]
        if row["history"] == HISTORY
    ]
    rows = service["points"]
    panels = {
        "training (youtubednn)": ("training.youtubednn.memory", runs),
        "index": (
            "index.memory",
            [(one["items"], one["dimension"], one["index"]["peak_mb"]) for one in rows],
        ),
        "service, one worker": (
            "service.memory",
            [(one["items"], one["dimension"], one["service"]["sqlite"]["resident_mb"]) for one in rows],
        ),
    }
    # Ids come from this salt, text stays text, and there is no date: the same figures give the same file.
    with matplotlib.rc_context({"svg.hashsalt": "turret", "svg.fonttype": "none"}):
        figure = Figure(figsize=(4 * len(panels), 3.8), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(1, len(panels), sharey=True)
        for panel, (title, (quantity, measured)) in zip(axes, panels.items(), strict=True):
            _draw(panel, figures, quantity, measured)
            panel.set(xscale="log", yscale="log", xlabel="items", title=title)
            panel.grid(visible=True, alpha=0.3)
        axes[0].set_ylabel("GB of memory")
        axes[0].legend(fontsize="small")
        figure.savefig(path, metadata={"Date": None})


def _draw(panel: Axes, figures: Figures, quantity: str, measured: list[tuple[float, int, float]]) -> None:
    most = figures.quantities[quantity].largest["items"]
    for color, dimension in enumerate(DIMENSIONS):
        points = [(items, mb / MB_A_GB) for items, width, mb in measured if width == dimension]
        panel.plot(*zip(*points, strict=True), "o", color=f"C{color}")
        for style, part in (("-", ITEMS[most >= ITEMS]), ("--", ITEMS[most <= ITEMS])):
            planned = [
                figures.at(quantity, derived_sizes(items=items, dimension=dimension, history=HISTORY)).value
                for items in part
            ]
            label = f"dimension {dimension}" if style == "-" else None
            panel.plot(part, np.array(planned) / 1e9, style, color=f"C{color}", label=label)
