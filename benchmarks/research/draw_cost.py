"""Blanc & Rendle 2018, section 3.2: what a draw costs by the number of classes, in time and memory.

A batch of queries gets candidates for each of them. The tree of the quadratic kernel is to take D log n a
draw, the alias tables take the same at every n, and kernels without a tree n for each query.
"""

import time
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.harness import Options
from benchmarks.plots import curves as plot_curves
from benchmarks.research.estimators import CPU, PaperFigure, Result, Results
from turret.tower.config import ScoringConfig
from turret.training import samplers
from turret.training.objectives.arguments import GivenStatistics
from turret.training.randomness import stream
from turret.training.samplers.core.contract import DrawContext
from turret.training.samplers.core.settings import BuildContext, SamplerSettings

CLASSES, QUICK_CLASSES = (10_000, 100_000, 1_000_000), (1_000, 10_000)
BATCH, WIDTH, NEGATIVES, ROUNDS = 256, 64, 64, 7
SCORING = ScoringConfig(kind="dot", temperature=1.0)
SAMPLERS: dict[str, SamplerSettings] = {
    "uniform": samplers.uniform(negatives=NEGATIVES, exclude_positive=True),
    "unigram": samplers.unigram(negatives=NEGATIVES, exclude_positive=True),
    "quadratic, tree": samplers.quadratic(negatives=NEGATIVES),
    "quartic": samplers.quartic(negatives=NEGATIVES),
    "softmax": samplers.softmax(negatives=NEGATIVES),
}


def measured(name: str, classes: int) -> Result:
    """The draws in a second, as a median of rounds, and the bytes of the sampler's arrays."""
    random = stream(0, "draw cost", classes)
    vectors = torch.from_numpy(random.standard_normal((classes, WIDTH), dtype=np.float32)) / WIDTH**0.5
    counts = 1 + random.integers(1_000, size=classes)
    sampler = SAMPLERS[name].build(BuildContext(GivenStatistics(classes, counts), SCORING, 0, CPU))
    sampler.refresh(vectors)
    seconds = []
    for step in range(ROUNDS + 1):  # the first one compiles
        positives = torch.from_numpy(random.integers(classes, size=BATCH))
        query = torch.from_numpy(random.standard_normal((BATCH, WIDTH), dtype=np.float32))
        context = DrawContext(
            stream(1, "draw cost", step), positives, vectors[positives], vectors.__getitem__
        )
        start = time.perf_counter()
        sampler.draw(query, positives, context)
        seconds.append(time.perf_counter() - start)
    return {
        "sampler": name,
        "classes": classes,
        "draws_per_second": BATCH * NEGATIVES / float(np.median(seconds[1:])),
        "megabytes": bytes_of(sampler) / 1e6,
    }


def bytes_of(holder: object, seen: set[int] | None = None) -> int:
    """The bytes of the arrays and tensors that an object of Turret holds."""
    seen = set() if seen is None else seen
    if id(holder) in seen:
        return 0
    seen.add(id(holder))
    if isinstance(holder, np.ndarray | torch.Tensor):
        return holder.nbytes
    if isinstance(holder, list | tuple):
        return sum(bytes_of(one, seen) for one in holder)
    if type(holder).__module__.startswith("turret."):
        return sum(bytes_of(one, seen) for one in vars(holder).values())
    return 0


def runs(options: Options) -> dict[str, partial[Result]]:
    """Each sampler at each number of classes."""
    sizes = QUICK_CLASSES if options.quick else CLASSES
    return {f"{name}, {size:,} classes": partial(measured, name, size) for name in SAMPLERS for size in sizes}


def plot(results: Results, path: Path) -> None:
    """Draws in a second over the number of classes."""
    lines: dict[str, list[float]] = {}
    for one in results.values():
        lines.setdefault(one["sampler"], []).append(one["draws_per_second"])
    points = [float(size) for size in CLASSES]
    plot_curves({"one core": lines}, ("classes", "draws in a second"), path, points, ("log", "log"))


FIGURE = PaperFigure("draw_cost", runs, plot)
