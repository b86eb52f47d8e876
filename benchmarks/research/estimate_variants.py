"""Variants of the estimates that their authors name and do not measure, on trained models.

Protocol: train the shipped YouTubeDNN on two real sets in batches of 1,024 for six epochs; then compare
gradients by the user vectors of 64 training examples, with 200 draws of each, with those of the full softmax.

- Several samples from one walk of the kernel sampler (Blanc & Rendle 2018, section 3.2.2), K = 64.
- One draw of S + S' for the batch (Botev et al. 2017), beside masked positives, draws of each example, and
  half of each, on the first set; also the gradient by the item vectors of a batch of 1,024, with 40 draws.
- An unbiased 1 / Z (Booth 2007), at an equal expected number of candidates; and softmax regression with it,
  on the problem of figure 2(a) of Botev et al. 2017.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.harness import Options, Side, Turn, alternate, rate_summary, run
from benchmarks.research.reciprocal import reciprocals, regression
from benchmarks.samplers import QUICK, SETS, SETTINGS, trained
from turret.data.prepared import PreparedData
from turret.tower.towers.scoring import cross_scores, paired_scores
from turret.training.batches.batches import TrainingBatches
from turret.training.losses.catalog import full_softmax
from turret.training.losses.sampled import SampledSoftmaxConfig, sampled_softmax
from turret.training.model_loss import model_loss
from turret.training.objectives.sampled import SampledObjective
from turret.training.randomness import stream
from turret.training.report.gradients import gradient_error
from turret.training.report.measured import Entry
from turret.training.report.queries import Examples, drawer
from turret.training.report.samplers import ReportRequest, SamplerReport
from turret.training.run import Run
from turret.training.samplers.core.categorical import invert
from turret.training.samplers.core.contract import DrawContext, Sampler
from turret.training.samplers.core.draw import Draw
from turret.training.samplers.fixed.complement import ComplementSampler
from turret.training.samplers.fixed.popularity import PopularitySampler, UnigramConfig
from turret.training.samplers.fixed.shared_complement import SharedComplementSampler
from turret.training.samplers.fixed.weights import unigram_weights
from turret.training.samplers.kernel.coded_sums import CodedSums
from turret.training.samplers.kernel.quadratic import QuadraticConfig, QuadraticSampler
from turret.training.samplers.kernel.snapshot import KernelSnapshot
from turret.training.samplers.union import MixedSampler
from turret.training.statistics import PreparedStatistics

# Draws and steps a turn, and rounds: the shortest counts.
BATCHES, STEPS, ROUNDS = 3, 3, 4


def milliseconds(report: SamplerReport, samplers: Mapping[str, Sampler]) -> dict[str, dict[str, float]]:
    """`draw_ms` and `step_ms` of each sampler, for a batch of the run.

    Of the processor, by all threads: it does not depend on who else uses the machine. A step has both towers,
    draw, scores, loss, backward and the sampler's update, without the optimiser.
    """
    draws = alternate({name: Turn(drawing(report, one), BATCHES) for name, one in samplers.items()}, ROUNDS)
    steps = alternate({name: Turn(stepping(report, one), STEPS) for name, one in samplers.items()}, ROUNDS)
    return {
        name: {
            "draw_ms": 1000.0 / rate_summary(draws)[name]["greatest"],
            "step_ms": 1000.0 / rate_summary(steps)[name]["greatest"],
        }
        for name in samplers
    }


def timed(one: Callable[[int], object]) -> Side:
    """A side of calls of `one` with their number."""

    def run(steps: int) -> tuple[int, float]:
        start = time.process_time()
        for step in range(steps):
            one(step)
        return steps, time.process_time() - start

    return run


def drawing(report: SamplerReport, sampler: Sampler) -> Side:
    """Draws for a batch of the run."""
    batch = report.queries.batch(np.random.default_rng(0))

    def draw(step: int) -> None:
        context = report.queries.context(batch, np.random.default_rng(step))
        sampler.draw(batch.users, batch.positives, context)

    return timed(draw)


def stepping(report: SamplerReport, sampler: Sampler) -> Side:
    """Steps of the run's model."""
    objective = SampledObjective(SampledSoftmaxConfig(), sampler, len(report.queries.vectors))
    batches = TrainingBatches.of(report.experiment, report.data, report.experiment.training.batch_size)
    batch = next(batches.epoch(stream(0, "step times", 0)))

    def step(number: int) -> None:
        report.model.zero_grad()
        loss = model_loss(objective, report.model, batch, stream(0, "step", number)).loss
        torch.autograd.backward(loss)
        sampler.update(report.model.current_vectors)

    return timed(step)


NEGATIVES = 64
# Draws of a block a walk, and the items of a leaf in the paper: D (D + 1) / 2 features over D coordinates.
DRAWS = (1, 2, 8, 64)


class PartialSums(CodedSums):
    """The kernel's sums with `each` draws of every block that is picked, always by blocks."""

    def __init__(self, rows: int, width: int, alpha: float, each: int, block: int | None = None) -> None:
        super().__init__(rows, width, alpha, block)
        self.each, self.most_work = each, 0.0

    def _pick_blocks(
        self, query: Tensor, counts: Tensor, excluded: Tensor, random: torch.Generator
    ) -> Tensor:
        walks = super()._pick_blocks(query, counts // self.each, excluded, random)
        return walks.repeat_interleave(self.each)

    def blocks_of(self, query: Tensor, walks: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
        """Blocks [B, m] of m walks, and q of every block [B, blocks]."""
        masses = self.alpha * (self._features(query) @ self._sums.T).clamp(min=0.0) + self._sizes
        uniform = torch.rand(len(query), walks, generator=random, dtype=torch.float64)
        return invert(masses.cumsum(dim=1), uniform), masses / masses.sum(dim=1, keepdim=True)


class PartialSampler(QuadraticSampler):
    """`draws` candidates of each walk, by the kernel."""

    def __init__(self, report: SamplerReport, draws: int, block: int | None = None) -> None:
        items, settings = len(report.data.item_ids), QuadraticConfig()
        temperature = report.scoring.temperature
        super().__init__(items, NEGATIVES, settings.alpha, 100, report.device, temperature=temperature)
        made = partial(PartialSums, alpha=self.scale, each=draws, block=block)
        self.snapshot = KernelSnapshot(items, 100, report.device, made)


class LeafSampler(PartialSampler):
    """All items of the blocks of K / `size` walks."""

    def __init__(self, report: SamplerReport, size: int) -> None:
        super().__init__(report, 1, size)
        self.size = size

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Whole blocks: [B, K] ids."""
        sums, walks = self.snapshot.sums, self.negatives // self.size
        assert isinstance(sums, PartialSums)
        random = torch.Generator().manual_seed(int(context.random.integers(2**63)))
        picked, share = sums.blocks_of(query, walks, random)
        rows = (picked.unsqueeze(2) * self.size + torch.arange(self.size)).flatten(1)
        counts = (walks * share).log().float()
        return Draw(
            ids=rows.clamp(max=self.snapshot.item_count - 1),
            log_count=counts.gather(1, picked).repeat_interleave(self.size, dim=1),
            positive_log_count=counts.gather(1, (positives // self.size).unsqueeze(1))[:, 0],
            valid=(rows < self.snapshot.item_count) & (rows != positives.unsqueeze(1)),
        )


@dataclass(frozen=True)
class Partial:
    """One row: a sampler, and how many walks it makes for K candidates."""

    label: str
    walks: int
    sampler: QuadraticSampler


def partial_rows(report: SamplerReport) -> list[Partial]:
    """The shipped sampler, by blocks from independent walks to one walk for all, and whole leaves."""
    items, temperature = len(report.data.item_ids), report.scoring.temperature
    alpha = QuadraticConfig().alpha
    shipped = QuadraticSampler(items, NEGATIVES, alpha, 100, report.device, temperature=temperature)
    leaf = report.experiment.tower.dimension // 2
    return [
        Partial("shipped, independent", NEGATIVES, shipped),
        *(
            Partial(f"blocks, {draws} a walk", NEGATIVES // draws, PartialSampler(report, draws))
            for draws in DRAWS
        ),
        Partial(f"whole leaves of {leaf}", NEGATIVES // leaf, LeafSampler(report, leaf)),
    ]


def partial_samples(report: SamplerReport) -> list[dict[str, Any]]:
    """Gradient errors and times of each, at K = 64."""
    queries, draws, rows = report.queries, report.request.draws, partial_rows(report)
    for row in rows:
        row.sampler.refresh(queries.vectors)
    times = milliseconds(report, {row.label: row.sampler for row in rows})
    measured = []
    for row in rows:
        entry = Entry(row.label, NEGATIVES, QuadraticConfig(negatives=NEGATIVES))
        draw_once = drawer(entry, row.sampler, queries)
        error = gradient_error(queries.examples, queries.vectors, report.scoring, draw_once, draws)
        measured.append({"sampler": row.label, "walks": row.walks, **asdict(error), **times[row.label]})
    return measured


CANDIDATES, SPARE, BATCH_DRAWS = (64, 512), 32, 40


@dataclass(frozen=True)
class Shared:
    """One row."""

    label: str
    candidates: int
    sampler: Sampler

    @property
    def name(self) -> str:
        """Of this row alone."""
        return f"{self.label}, {self.candidates}"


def shared_rows(report: SamplerReport) -> Iterator[Shared]:
    """Unigram draws (alpha = 1, whose positives are drawn most often), by how they are shared."""
    weights = unigram_weights(PreparedStatistics(report.data).item_counts(), 1.0)
    for size in CANDIDATES:
        plain = PopularitySampler(weights, size, report.device)
        yield Shared("S shared, positives masked", size, plain)
        spare = SharedComplementSampler(weights, size, SPARE, report.device)
        yield Shared(f"S + {SPARE} shared, no positives", size, spare)
        own = ComplementSampler(weights, size, report.device)
        yield Shared("S of each example, no positives", size, own)
        halves = (
            PopularitySampler(weights, size // 2, report.device),
            ComplementSampler(weights, size // 2, report.device),
        )
        yield Shared("S / 2 shared and S / 2 of each example", size, MixedSampler(halves))


def by_items(vectors: Tensor, losses: Tensor) -> Tensor:
    """The gradient of the mean loss by the item vectors [N, D]."""
    return torch.autograd.grad(losses.mean(), vectors)[0]


def batch_error(report: SamplerReport, batch: Examples, sampler: Sampler, label: str) -> dict[str, float]:
    """Bias and variance of the batch's gradient by the item vectors, relative to the exact one's length."""
    vectors, scoring = report.queries.vectors.detach().clone().requires_grad_(), report.scoring
    scores = cross_scores(batch.users, vectors, scoring)
    exact = by_items(vectors, full_softmax(scores, batch.positives))
    total, squares = torch.zeros_like(exact), 0.0
    for number in range(BATCH_DRAWS):
        random = stream(0, f"batch {label}", number)
        draw = sampler.draw(batch.users, batch.positives, report.queries.context(batch, random))
        positive = paired_scores(batch.users, vectors[batch.positives], scoring)
        drawn = cross_scores(batch.users, vectors[draw.ids], scoring)
        deviation = by_items(vectors, sampled_softmax(positive, drawn, draw)) - exact
        total += deviation
        squares += float(deviation.square().sum())
    length, mean = float(exact.square().sum()), squares / BATCH_DRAWS
    squared_bias = (float(total.square().sum()) - squares) / (BATCH_DRAWS * (BATCH_DRAWS - 1))
    return {
        "batch_bias": max(0.0, squared_bias / length) ** 0.5,
        "batch_variance": max(0.0, mean - squared_bias) / length,
    }


def shared_draws(report: SamplerReport) -> list[dict[str, Any]]:
    """Errors of one example's and of the batch's gradient, and the times of draw and step."""
    queries, draws, rows = report.queries, report.request.draws, list(shared_rows(report))
    batch = queries.others.take(slice(0, queries.batch_size))
    times = milliseconds(report, {row.name: row.sampler for row in rows})
    measured = []
    for row in rows:
        draw_once = drawer(Entry(row.name, row.candidates, UnigramConfig()), row.sampler, queries)
        error = gradient_error(queries.examples, queries.vectors, report.scoring, draw_once, draws)
        of_batch = batch_error(report, batch, row.sampler, row.name)
        figures = {**asdict(error), **of_batch, **times[row.name]}
        measured.append({"draw": row.label, "size": row.candidates, **figures})
    return measured


def variants(run: Run, data: PreparedData, request: ReportRequest, shared: bool) -> dict[str, Any]:
    """The variants on one trained model; with `shared`, also the shared draws."""
    report = SamplerReport(run, data, request)
    return {
        "items": len(data.item_ids),
        "queries": report.query_count,
        "draws": request.draws,
        "partial": partial_samples(report),
        **({"shared": shared_draws(report)} if shared else {}),
        "reciprocal": reciprocals(report),
    }


def measure(options: Options) -> dict[str, Any]:
    """Both sets and the regression; the first set, roughly, where it has to be quick."""
    names = list(SETS)[:1] if options.quick else list(SETS)
    request = ReportRequest(queries=16, draws=20) if options.quick else ReportRequest()
    sets = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            events, in_file_order = SETS[name]
            settings = QUICK if options.quick else SETTINGS
            run, data = trained(options.data / name / events, in_file_order, Path(folder) / name, settings)
            sets[name] = variants(run, data, request, shared=name == names[0])
    trainings = regression(6 if options.quick else 30)
    return {"threads": torch.get_num_threads(), "sets": sets, "regression": trainings}


if __name__ == "__main__":
    # Processor time is that of the work alone where no thread waits for another.
    torch.set_num_threads(1)
    run(measure)
