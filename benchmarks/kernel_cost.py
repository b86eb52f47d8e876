"""The cost of a training step with the quadratic kernel over one with the full softmax, by catalog size.

B = 256 examples, D = 64, K = 64 candidates drawn for each example. Both steps have the same towers and are
whole: draw, scores, loss, backward, optimiser, sampler update. Each side has the Adam that suits it: dense
and fused for the full softmax, on the drawn rows for the other. The sampler draws by a snapshot of which one
hundredth is renewed after every step. The sides alternate in one process; figures are medians. As the full
softmax lives on matrices of megabytes to gigabytes, it is measured once more where torch asks the system for
large pages, in a process of its own. `--items N` measures one catalog size (repeatable), and keeps no result.

The item tower is a table, the user tower one linear layer on random features whose output is normalised. Item
vectors start as random unit vectors and are then free, so that the full softmax doesn't normalise the table.
"""

import argparse
import gc
import statistics
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from benchmarks.harness import Options, run
from benchmarks.processes import alone
from turret.tower.config import ScoringConfig
from turret.tower.towers.model import cross_scores
from turret.training.loop.optimiser import RowAdam
from turret.training.losses.catalog import full_softmax
from turret.training.losses.sampled import sampled_softmax
from turret.training.objectives.arguments import GivenStatistics
from turret.training.randomness import stream
from turret.training.samplers.core.contract import DrawContext
from turret.training.samplers.core.settings import BuildContext
from turret.training.samplers.kernel.quadratic import QuadraticConfig, QuadraticSampler

BATCH, WIDTH, NEGATIVES, ALPHA, REFRESH_EVERY = 256, 64, 64, 100.0, 100
SCORING = ScoringConfig(kind="dot", temperature=0.07)
LEARNING_RATE = 1e-3


@dataclass
class Towers:
    """An item table [N, D], and a user tower with its optimiser."""

    items: nn.Embedding
    users: nn.Linear = field(default_factory=lambda: nn.Linear(WIDTH, WIDTH, bias=False))

    def __post_init__(self) -> None:
        self.optimiser = torch.optim.Adam(self.users.parameters(), LEARNING_RATE, fused=True)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """User features [B, D] and positives [B]."""
        random = stream(0, "batch", step)
        features = random.standard_normal((BATCH, WIDTH), dtype=np.float32)
        rows = random.integers(self.items.num_embeddings, size=BATCH)
        return torch.from_numpy(features), torch.from_numpy(rows)

    def user_vectors(self, features: Tensor) -> Tensor:
        """Unit vectors [B, D]."""
        return normalize(self.users(features), dim=1)


def new_towers(item_count: int, sparse: bool) -> Towers:
    """Towers for N items; the table's gradient has the rows looked up (`sparse`), or is dense."""
    torch.manual_seed(0)
    towers = Towers(nn.Embedding(item_count, WIDTH, sparse=sparse))
    with torch.no_grad():
        normalize(towers.items.weight, dim=1, out=towers.items.weight)
    return towers


class SampledStep:
    """Draw, scores, loss, backward, Adam on the rows drawn, and the sampler's update."""

    def __init__(self, item_count: int) -> None:
        self.towers = new_towers(item_count, sparse=True)
        self.rows = RowAdam(self.towers.items.parameters(), LEARNING_RATE)
        settings = QuadraticConfig(negatives=NEGATIVES, alpha=ALPHA, refresh_every=REFRESH_EVERY)
        statistics = GivenStatistics(item_count)
        self.sampler = QuadraticSampler(settings, BuildContext(statistics, SCORING, 0, torch.device("cpu")))
        self.sampler.refresh(self.towers.items.weight.detach())
        self.steps = 0

    def context(self) -> DrawContext:
        """The context in which the sampler draws for this step."""
        nothing = torch.empty(0)
        return DrawContext(stream(0, "draw", self.steps), nothing, nothing, self.encode)

    def encode(self, rows: Tensor) -> Tensor:
        """The item vectors of `rows`."""
        return self.towers.items.weight.detach()[rows]

    def __call__(self) -> float:
        """Take a step; return its seconds."""
        towers = self.towers
        features, positives = towers.batch(self.steps)
        start = time.perf_counter()
        users = towers.user_vectors(features)
        draw = self.sampler.draw(users.detach(), positives, self.context())
        vectors = towers.items(torch.cat([positives.unsqueeze(1), draw.ids], dim=1))
        # As a sum of products the gradient of the vectors comes in the order in which Adam reads it.
        scores = (vectors * (users / SCORING.temperature).unsqueeze(1)).sum(dim=2)
        torch.autograd.backward(sampled_softmax(scores[:, 0], scores[:, 1:], draw).mean())
        for optimiser in (self.rows, towers.optimiser):
            optimiser.step()
            optimiser.zero_grad()
        self.sampler.update(self.encode)
        self.steps += 1
        return time.perf_counter() - start

    def log_count_error(self) -> float:
        """The largest difference of a draw's log counts from those of a loop over the table, in float64."""
        table = self.towers.items.weight.detach()
        self.sampler.refresh(table)
        features, positives = self.towers.batch(1)
        users, positives = self.towers.user_vectors(features).detach()[:16], positives[:16]
        draw = self.sampler.draw(users, positives, self.context())
        # Scores are inner products with the tempered queries.
        queries, mass = users.double().numpy() / SCORING.temperature, np.zeros(len(users))
        for block in np.array_split(table.numpy(), max(1, len(table) // 100_000)):
            mass += (ALPHA * (queries @ block.astype(np.float64).T) ** 2 + 1.0).sum(axis=1)
        ids = torch.cat([draw.ids, positives[:, None]], dim=1)
        log_counts = torch.cat([draw.log_count, draw.positive_log_count[:, None]], dim=1).numpy()
        products = np.einsum("bkd,bd->bk", table[ids].double().numpy(), queries)
        exact = np.log(NEGATIVES * (ALPHA * products**2 + 1.0) / mass[:, None])
        return float(np.abs(log_counts - exact).max())


class FullStep:
    """All scores, cross entropy, backward, and Adam on the whole table."""

    def __init__(self, item_count: int) -> None:
        self.towers = new_towers(item_count, sparse=False)
        self.table = torch.optim.Adam(self.towers.items.parameters(), LEARNING_RATE, fused=True)
        self.steps = 0

    def __call__(self) -> float:
        """Take a step; return its seconds."""
        towers = self.towers
        features, positives = towers.batch(self.steps)
        start = time.perf_counter()
        scores = cross_scores(towers.user_vectors(features), towers.items.weight, SCORING)
        torch.autograd.backward(full_softmax(scores, positives).mean())
        for optimiser in (self.table, towers.optimiser):
            optimiser.step()
            optimiser.zero_grad()
        self.steps += 1
        return time.perf_counter() - start


SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
QUICK_SIZES = (1_000, 10_000)
# The full softmax of ten million items would hold three matrices of 10 GB.
LARGEST_FULL = 1_000_000
ROUNDS, QUICK_ROUNDS = 8, 3
SAMPLED_STEPS_A_ROUND, FULL_STEPS = 6, 6


def full_steps(item_count: int) -> list[float]:
    """The seconds of steps of the full softmax, after one to warm up."""
    torch.set_num_threads(min(2, torch.get_num_threads()))
    step = FullStep(item_count)
    return [step() for _ in range(1 + FULL_STEPS)][1:]


def measure_size(item_count: int, rounds: int) -> dict[str, Any]:
    """Measure both steps in turn at one catalog size."""
    sampled = SampledStep(item_count)
    full = FullStep(item_count) if item_count <= LARGEST_FULL else None
    turns = {"sampled": [sampled() for _ in range(3)], "full": [full()] if full else []}
    for times in turns.values():
        times.clear()  # these steps were to warm up
    for _ in range(rounds):
        if full is not None:
            turns["full"].append(full())
        turns["sampled"] += [sampled() for _ in range(SAMPLED_STEPS_A_ROUND)]
    sums = sampled.sampler.sums
    assert sums is not None
    row: dict[str, Any] = {
        "items": item_count,
        "sampler_bytes": sums.bytes,
        "table_bytes": item_count * WIDTH * 4,
        "log_count_error": sampled.log_count_error(),
    }
    if full is not None:
        del full
        turns["full_large_pages"] = alone(full_steps, item_count, THP_MEM_ALLOC_ENABLE="1")
    medians = {name: 1e3 * statistics.median(times) for name, times in turns.items() if times}
    row |= {name: {"median_ms": median} for name, median in medians.items()}
    if "full" in medians:
        row["ratio_full"] = medians["full"] / medians["sampled"]
    return row


def measure(options: Options) -> dict[str, Any]:
    """Measure all sizes, and compute the claimed figures."""
    torch.set_num_threads(min(2, torch.get_num_threads()))
    rows = []
    for item_count in options.given.items or (QUICK_SIZES if options.quick else SIZES):
        rows.append(measure_size(item_count, QUICK_ROUNDS if options.quick else ROUNDS))
        gc.collect()
    by_size = {row["items"]: row for row in rows}
    small, large = (by_size.get(size, {}).get("sampled", {}).get("median_ms") for size in (10**4, 10**6))
    return {
        "ratio_full_1e5": by_size.get(10**5, {}).get("ratio_full"),
        "ratio_full_1e6": by_size.get(10**6, {}).get("ratio_full"),
        "growth_1e4_1e6": large / small if small and large else None,
        "max_log_count_error": max(row["log_count_error"] for row in rows),
        "rows": rows,
        "setting": {
            "batch": BATCH,
            "width": WIDTH,
            "negatives": NEGATIVES,
            "alpha": ALPHA,
            "temperature": SCORING.temperature,
            "refresh_every": REFRESH_EVERY,
            "threads": torch.get_num_threads(),
        },
    }


if __name__ == "__main__":
    sizes = argparse.ArgumentParser(add_help=False)
    sizes.add_argument("--items", action="append", type=int, metavar="N", help="one size (repeatable; all)")
    run(measure, needs_data=False, more=sizes, is_whole=lambda options: not options.given.items)
