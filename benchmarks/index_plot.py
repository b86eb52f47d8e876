"""The plot of `benchmarks.index`: recall@10 against queries/s, a panel a set, a point a kind or peer."""

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.index_page import SETS, fastest_calls
from benchmarks.protocol import RESULTS

PATH = RESULTS / "index.svg"


def plot(figures: dict[str, Any], path: Path = PATH) -> None:
    """Draw every side at its fastest settings; crosses are peers, the line is the recall that was asked."""
    # Ids come from this salt, text stays text, and there is no date: the same figures give the same file.
    with matplotlib.rc_context({"svg.hashsalt": "turret", "svg.fonttype": "none"}):
        figure = Figure(figsize=(4.5 * len(figures["sets"]), 4.5), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(1, len(figures["sets"]), squeeze=False)[0]
        for panel, (name, one) in zip(panels, figures["sets"].items(), strict=True):
            for call in fastest_calls(one):
                where = call["queries_per_second"], call["recall"]
                panel.plot(*where, "x" if call["is_peer"] else "o", color="C1" if call["is_peer"] else "C0")
                panel.annotate(call["side"], where, (4, 4), textcoords="offset points", fontsize="x-small")
            panel.axhline(figures["target"], color="black", linewidth=0.8)
            panel.set(
                xscale="log", xlabel="queries/s, one thread", title=f"{SETS[name]}, {one['items']:,} items"
            )
            panel.margins(x=0.25)
            panel.grid(visible=True, alpha=0.3)
        panels[0].set_ylabel("recall@10")
        figure.savefig(path, metadata={"Date": None})
