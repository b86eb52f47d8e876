"""A step of the spherical softmax: the exact update in O(D^2) beside autograd over all scores.

Protocol: batches of 256 examples, vectors 64 wide, float32; the loss, the gradient by the users and the step
of plain gradient descent on all item vectors, medians.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.harness import Options, run
from turret.training.losses.catalog import spherical_softmax
from turret.training.losses.spherical_update import FactoredItems

SIZES, QUICK = (10_000, 30_000, 100_000, 300_000), (10_000, 30_000)
BATCH, DIMENSION, RATE, TURNS = 256, 64, 0.1, 7


def milliseconds(step: Callable[[], object]) -> float:
    """The median wall time of a step, after one to warm up."""
    times = []
    for _ in range(TURNS + 1):
        start = time.perf_counter()
        step()
        times.append(1000.0 * (time.perf_counter() - start))
    return statistics.median(times[1:])


def one_size(items: int) -> dict[str, Any]:
    """Both steps on a catalog of `items`, from the same vectors."""
    random = torch.manual_seed(0)
    vectors = torch.randn(items, DIMENSION, generator=random) / DIMENSION**0.5
    users = torch.randn(BATCH, DIMENSION, generator=random)
    positives = torch.randint(items, (BATCH,), generator=random)
    factored, dense = FactoredItems(vectors), vectors.clone().requires_grad_()

    def over_all_scores() -> None:
        read = users.clone().requires_grad_()
        loss = spherical_softmax(read @ dense.T, positives, epsilon=1.0).mean()
        by_items, _ = torch.autograd.grad(loss, (dense, read))
        with torch.no_grad():
            dense.sub_(by_items, alpha=RATE)

    exact = milliseconds(lambda: factored.step(users, positives, RATE))
    scored = milliseconds(over_all_scores)
    return {"items": items, "factored_ms": exact, "dense_ms": scored, "ratio": scored / exact}


def measure(options: Options) -> dict[str, Any]:
    """Every size."""
    rows = [one_size(items) for items in (QUICK if options.quick else SIZES)]
    return {"batch": BATCH, "dimension": DIMENSION, "threads": torch.get_num_threads(), "rows": rows}


if __name__ == "__main__":
    run(measure, needs_data=False)
