"""The measured part of each page: a template of `templates`, filled from the results that are kept.

A template reads a result by `result(NAME)`. `{{ value | fmt(".2f") }}` formats as Python does.
"""

import math
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2

from benchmarks.ablation import SETS as ABLATED
from benchmarks.harness import kept, result
from benchmarks.plots import INDEX_TITLES, fastest_calls
from benchmarks.quality_sets import SETS
from benchmarks.research.estimators import by_setting
from benchmarks.research.softmax_regression import chosen
from benchmarks.timed_sets import TIMED
from turret.data.text import duration, size
from turret.plan import Machine, PlanRequest, load_figures, make_plan

TEMPLATES = Path(__file__).parent / "templates"
MACHINES = (Machine(4, 16e9, 200e9), Machine(16, 64e9, 1e12))
SHOP = PlanRequest(
    users=1e6,
    items=1e5,
    events=5e7,
    requests=100.0,
    machine=MACHINES[0],
    dimension=64,
    history=50,
    experiment="youtubednn",
    epochs=10,
    hours=8.0,
)
Row = dict[str, Any]


def section(page: str) -> str:
    """The Markdown that belongs between the markers of the page with this file name."""
    return render(page, **_CONTEXT.get(page, dict)())


def render(name: str, **values: Any) -> str:
    """Fill in the template of this name; the text ends with one line break."""
    text = _environment().get_template(f"{name}.j2").render(values)
    return f"{text.rstrip()}\n"


def by(rows: Iterable[Row], key: str) -> list[tuple[Any, list[Any]]]:
    """The rows of each value of a key or attribute, in the order of first appearance."""
    groups: dict[Any, list[Any]] = {}
    for row in rows:
        groups.setdefault(row[key] if isinstance(row, dict) else getattr(row, key), []).append(row)
    return list(groups.items())


def bias(row: Row) -> str:
    """The bias as text; its upper bound where the interval includes 0."""
    return f"{row['bias']:.1%}" if row["bias_low"] > 0.0 else f"< {row['bias_high']:.1%}"


def anchor(title: str) -> str:
    """The fragment of a heading."""
    return re.sub(r"[^\w-]", "", title.lower().replace(" ", "-"))


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "anchor": anchor,
        "bias": bias,
        "by": by,
        "bytes": size,
        "exp": math.exp,
        "day": lambda kept_result: kept_result["machine"]["date"][:10],
        "fmt": format,
        "mean": statistics.mean,
        "median": statistics.median,
        "pstdev": statistics.pstdev,
        "stdev": statistics.stdev,
        "time": duration,
    }
    environment.globals |= {"column": lambda rows, name: [row[name] for row in rows], "result": result}
    return environment


def _scale() -> Row:
    figures = load_figures()
    return {
        "figures": figures,
        "plans": [make_plan(replace(SHOP, machine=machine), figures) for machine in MACHINES],
        "shop": SHOP,
    }


_CONTEXT: dict[str, Callable[[], Row]] = {
    "README.md": lambda: {"fastest_calls": fastest_calls, "quality_sets": SETS},
    "data.md": lambda: {"memory": load_figures().quantities["preparation.memory"]},
    "papers.md": lambda: {
        "by_setting": by_setting,
        "chosen": chosen,
        "largest_rise": _largest_rise,
        "seconds": _seconds,
    },
    "results.md": lambda: {
        "quality_sets": SETS.values(),
        "seeds_of": kept,
        "timed_sets": TIMED.values(),
        "ablated": {row["set"]: ABLATED[row["set"]].settings for row in result("ablation")["rows"]},
    },
    "scale.md": _scale,
    "vector_index.md": lambda: {"fastest_calls": fastest_calls, "index_sets": INDEX_TITLES},
}


def _largest_rise(curve: Sequence[float]) -> float:
    """The most that a curve ever lies above an earlier point of itself."""
    return max(after - min(curve[: place + 1]) for place, after in enumerate(curve))


def _seconds(papers: Row) -> float:
    """The seconds of all runs; a measurement that several figures show is made once."""
    return sum(float(run["seconds"]) for runs in papers["runs"].values() for run in runs.values())
