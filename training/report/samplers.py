"""The sampler report: divergence, gradient error and cost of each sampler on a trained run."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from turret.data.prepared import PreparedData
from turret.data.progress import progress
from turret.tower.towers.model import TwoTowers
from turret.training.config.compatibility import refusal, scoring_refusal
from turret.training.device import pick_device
from turret.training.errors import TrainingError
from turret.training.losses.catalog import full_softmax
from turret.training.losses.loss import settings_of
from turret.training.losses.sampled import sampled_softmax
from turret.training.model_loss import build_objective
from turret.training.objectives.catalog import CatalogObjective
from turret.training.objectives.sampled import SampledObjective
from turret.training.randomness import stream
from turret.training.report.cost import StepTimer
from turret.training.report.divergence import divergence
from turret.training.report.gradients import gradient_error
from turret.training.report.in_batch_losses import in_batch_losses
from turret.training.report.measured import Entry, entries, stale_entries, too_large
from turret.training.report.queries import ExampleSource, Queries, drawer, proposal
from turret.training.report.staleness import MovingModel
from turret.training.run import Run
from turret.training.samplers.core.contract import Sampler
from turret.training.samplers.core.settings import SamplerContext
from turret.training.statistics import PreparedStatistics

# Q x N scores held at once, and those of all draws of a sampler over the whole catalog.
_MOST_SCORES, _DENSE_SCORES = 2**24, 2**30
_FEWEST_QUERIES, _FEWEST_DRAWS = 8, 20
_MOST_OTHERS, _ROWS_AT_ONCE = 16_384, 65_536


@dataclass(frozen=True)
class ReportRequest:
    """Sizes of a report: K negatives, Q queries, draws of each, maximum ages in steps, batches."""

    negatives: tuple[int, ...] = (4, 16, 64, 256)
    queries: int = 64
    draws: int = 200
    refresh_every: tuple[int, ...] = (1, 10, 100)
    batch_sizes: tuple[int, ...] = (1024, 8192)
    seed: int = 0


class SamplerReport:
    """Measures every sampler that can be built for a run, with the sampled softmax on real queries."""

    def __init__(self, run: Run, data: PreparedData, request: ReportRequest) -> None:
        """Open the run's model.

        Raises:
            TrainingError: there is no model yet, or its items are not ranked by an inner product.
        """
        self.run, self.data, self.request = run, data, request
        self.experiment = run.experiment
        loss = self.experiment.objective.loss
        if not loss.servable:
            raise TrainingError(
                f"{run.folder}: objective.loss = {loss.kind!r} does not rank items by an "
                "inner product, so samplers have no softmax over scores to be compared with; name a run with "
                "another loss."
            )
        self.device = pick_device(self.experiment.training.device)
        self.scoring = self.experiment.tower.scoring
        self.model = run.open_model(data).to(self.device)
        user = self.experiment.tower.user
        self.source = ExampleSource(data, user.history_length, user.reads_times)
        self.query_count = min(
            request.queries, len(self.source), max(_FEWEST_QUERIES, _MOST_SCORES // len(data.item_ids))
        )
        self.queries = self._queries(self.model)
        self.timer = StepTimer(self.model, data, self.experiment)
        self.skipped: list[dict[str, str]] = []

    def measure(self) -> dict[str, Any]:
        """The report as JSON-ready dicts."""
        listed = list(entries(self.request.negatives, self.experiment.training.batch_size))
        with progress("measuring samplers", len(listed)) as advance:
            rows = []
            for entry in listed:
                rows += self._row(entry)
                advance(1)
        full = self.timer.time(CatalogObjective(settings_of(full_softmax)()), dense=True)
        with progress("measuring in-batch losses"):
            in_batch = self.in_batch_losses()
        with progress("measuring stale item vectors"):
            stale = self._staleness() if self.request.refresh_every else []
        return {
            **self._setting(),
            "full_softmax": asdict(full),
            "samplers": rows,
            "in_batch_losses": in_batch,
            "staleness": stale,
            "skipped": self.skipped,
        }

    def in_batch_losses(self) -> list[dict[str, Any]]:
        """The gradient errors of the losses over in-batch candidates, as JSON-ready dicts."""
        return in_batch_losses(
            self.queries, self._context(), self.scoring, self.request.batch_sizes, self.request.draws
        )

    def _context(self) -> SamplerContext:
        return SamplerContext(PreparedStatistics(self.data), self.scoring, self.request.seed, self.device)

    def _setting(self) -> dict[str, Any]:
        experiment = self.experiment
        return {
            "run": str(self.run.folder),
            "items": len(self.data.item_ids),
            "dimension": experiment.tower.dimension,
            "scoring": self.scoring.model_dump(mode="json"),
            "batch_size": experiment.training.batch_size,
            "loss": "sampled_softmax",
            "queries": self.query_count,
            "queries_asked": self.request.queries,
            "draws": self.request.draws,
            "seed": self.request.seed,
            "device": self.device.type,
        }

    def _queries(self, model: TwoTowers) -> Queries:
        count = self.query_count
        others = min(_MOST_OTHERS, 4 * self.experiment.training.batch_size)
        examples = self.source.read(model, count + others, stream(self.request.seed, "report queries", 0))
        return Queries(
            examples=examples.take(slice(0, count)),
            others=examples.take(slice(count, None)) if len(examples) > count else examples,
            vectors=self._vectors(model),
            source=self.source,
            # An epoch of fewer examples is one batch of them.
            batch_size=min(self.experiment.training.batch_size, len(self.source)),
            seed=self.request.seed,
        )

    def _vectors(self, model: TwoTowers) -> Tensor:
        rows = torch.arange(len(self.data.item_ids), device=self.device)
        starts = range(0, len(rows), _ROWS_AT_ONCE)
        return torch.cat([model.current_vectors(rows[at : at + _ROWS_AT_ONCE]) for at in starts])

    def _row(self, entry: Entry) -> list[dict[str, Any]]:
        """The measures of one sampler; none, and an entry in `skipped`, if it can't be measured."""
        try:
            sampler = self._build(entry)
            measures = self._measures(entry, sampler, self.queries)
            objective = SampledObjective(settings_of(sampled_softmax)(), sampler, len(self.data.item_ids))
            cost = self.timer.time(objective, entry.dense)
        except TrainingError as error:
            self._skip(entry, str(error))
            return []
        return [{**_named(entry), **measures, **asdict(cost)}]

    def _build(self, entry: Entry) -> Sampler:
        """The sampler over the run's item vectors. Raises TrainingError with the reason to skip it."""
        loss = settings_of(sampled_softmax)()
        reason = (
            refusal(loss, entry.settings)
            or scoring_refusal(loss, entry.settings, self.scoring)
            or too_large(entry, len(self.data.item_ids))
        )
        if reason:
            raise TrainingError(reason)
        sampler = entry.settings.build(self._context())
        sampler.refresh(self.queries.vectors)
        return sampler

    def _skip(self, entry: Entry, reason: str) -> None:
        """Record a skipped sampler: one record for each reason, with all its sizes."""
        size = "" if entry.negatives is None else f" {entry.negatives}"
        for record in self.skipped:
            if (record["sampler"], record["reason"]) == (entry.label, reason):
                record["negatives"] += f",{size}"
                return
        self.skipped.append({"sampler": entry.label, "negatives": size.strip(), "reason": reason})

    def _measures(self, entry: Entry, sampler: Sampler, queries: Queries) -> dict[str, Any]:
        examples, vectors = queries.examples, queries.vectors
        error = gradient_error(
            examples, vectors, self.scoring, drawer(entry, sampler, queries), self._draws(entry)
        )
        distance = divergence(examples, vectors, self.scoring, proposal(entry, sampler, queries))
        return {name: _finite(value) for name, value in {**asdict(distance), **asdict(error)}.items()}

    def _draws(self, entry: Entry) -> int:
        """The number of draws: fewer for a sampler that scores a large catalog each time."""
        if not entry.dense:
            return self.request.draws
        affordable = _DENSE_SCORES // (self.query_count * len(self.data.item_ids))
        return min(self.request.draws, max(_FEWEST_DRAWS, affordable))

    def _staleness(self) -> list[dict[str, Any]]:
        """Gradient errors after further training, by the maximum age of the sampler's item vectors."""
        experiment, seed = self.experiment, self.experiment.training.seed
        objective = build_objective(experiment.objective, experiment.tower, self.data, seed, self.device).to(
            self.device
        )
        moving = MovingModel(self.model, objective, self.data, experiment)
        listed = {age: self._stale_samplers(age) for age in self.request.refresh_every}
        moving.follow({age: [sampler for _, sampler in built] for age, built in listed.items()})
        queries = self._queries(moving.model)
        moved = (queries.vectors - self.queries.vectors).norm() / self.queries.vectors.norm()
        rows = [
            {
                **_named(entry),
                "refresh_every": age,
                "steps": max(self.request.refresh_every),
                "moved": float(moved),
                **self._measures(entry, sampler, queries),
            }
            for age, built in listed.items()
            for entry, sampler in built
        ]
        return sorted(rows, key=lambda row: (row["sampler"], row["refresh_every"]))

    def _stale_samplers(self, age: int) -> list[tuple[Entry, Sampler]]:
        built = []
        for entry in stale_entries(age):
            try:
                built.append((entry, self._build(entry)))
            except TrainingError as error:
                self._skip(replace(entry, label=f"{entry.label}, refresh_every"), str(error))
        return built


def _named(entry: Entry) -> dict[str, Any]:
    settings = entry.settings.model_dump(mode="json")
    return {"sampler": entry.label, "kind": entry.kind, "negatives": entry.negatives, "settings": settings}


def _finite(value: float | None) -> float | None:
    """JSON has no infinity."""
    return value if value is not None and math.isfinite(value) else None
