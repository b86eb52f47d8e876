"""The sampler report: divergence, gradient error and cost of each sampler on a trained run."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from turret.data.prepared import PreparedData
from turret.data.progress import progress
from turret.tower.towers.model import TwoTowers
from turret.training.batches.batches import PreparedStatistics, TrainingBatches
from turret.training.config.compatibility import refusal, scoring_refusal
from turret.training.errors import TrainingError
from turret.training.losses.catalog import full_softmax
from turret.training.losses.loss import settings_of
from turret.training.losses.sampled import sampled_softmax_corrected
from turret.training.objectives.catalog import CatalogObjective
from turret.training.objectives.contract import Objective
from turret.training.objectives.sampled import DrawLossSettings, SampledObjective
from turret.training.process import pick_device
from turret.training.randomness import stream
from turret.training.report.measures import divergence, gradient_error
from turret.training.report.queries import (
    SAMPLED,
    Entry,
    Queries,
    drawer,
    entries,
    proposal,
    read_examples,
    stale_entries,
)
from turret.training.report.steps import Cost, moved_model, step_cost
from turret.training.run import Run
from turret.training.samplers.core.contract import Sampler
from turret.training.samplers.core.settings import SamplerContext
from turret.training.samplers.from_batch.in_batch import InBatchConfig

# Q x N scores held at once, and those of all draws of a sampler over the whole catalog.
_MOST_SCORES, _DENSE_SCORES = 2**24, 2**30
_FEWEST_QUERIES, _FEWEST_DRAWS = 8, 20
_MOST_OTHERS, _ROWS_AT_ONCE, _USERS_AT_ONCE = 16_384, 65_536, 4096
# The features of all items in memory.
_MOST_FEATURE_BYTES = 2**30


_CORRECTED = settings_of(sampled_softmax_corrected)
IN_BATCH_LOSSES: dict[str, DrawLossSettings] = {
    "sampled_softmax": SAMPLED,
    "sampled_softmax_corrected": _CORRECTED(),
    "sampled_softmax_corrected, hits kept": _CORRECTED(remove_accidental_hits=False),
}


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
        self.batches = TrainingBatches.of(self.experiment, data, _USERS_AT_ONCE)
        since = self.experiment.training.since
        self.statistics = PreparedStatistics(data, self.experiment.tower.user.context, since)
        self.items = len(data.item_ids)
        affordable = max(_FEWEST_QUERIES, _MOST_SCORES // self.items)
        self.query_count = min(request.queries, self.batches.example_count, affordable)
        self.queries = self._queries(self.model)
        self.context = SamplerContext(self.statistics, self.scoring, request.seed, self.device)
        self.skipped: dict[tuple[str, str], list[str]] = {}

    def measure(self) -> dict[str, Any]:
        """The report as JSON-ready dicts."""
        request, batch_size = self.request, self.experiment.training.batch_size
        listed = list(entries(request.negatives, batch_size))
        with progress("measuring samplers", len(listed)) as advance:
            rows = []
            for entry in listed:
                rows += self._row(entry)
                advance(1)
        full = self._cost(CatalogObjective(settings_of(full_softmax)()), dense=True)
        with progress("measuring in-batch losses"):
            in_batch = [
                {"loss": label, "batch_size": size, **self._of_batch(loss, size)}
                for size in request.batch_sizes
                for label, loss in IN_BATCH_LOSSES.items()
            ]
        with progress("measuring stale item vectors"):
            stale = self._staleness() if request.refresh_every else []
        return {
            "run": str(self.run.folder),
            "items": self.items,
            "dimension": self.experiment.tower.dimension,
            "scoring": self.scoring.model_dump(mode="json"),
            "batch_size": batch_size,
            "loss": "sampled_softmax",
            "queries": self.query_count,
            "queries_asked": request.queries,
            "draws": request.draws,
            "seed": request.seed,
            "device": self.device.type,
            "full_softmax": asdict(full),
            "samplers": rows,
            "in_batch_losses": in_batch,
            "staleness": stale,
            "skipped": [
                {"sampler": label, "negatives": ", ".join(sizes), "reason": reason}
                for (label, reason), sizes in self.skipped.items()
            ],
        }

    def _queries(self, model: TwoTowers) -> Queries:
        count, batch_size = self.query_count, self.experiment.training.batch_size
        random = stream(self.request.seed, "report queries", 0)
        examples = read_examples(model, self.batches, count + min(_MOST_OTHERS, 4 * batch_size), random)
        rows = torch.arange(self.items, device=self.device)
        starts = range(0, self.items, _ROWS_AT_ONCE)
        return Queries(
            examples=examples.take(slice(0, count)),
            others=examples.take(slice(count, None)) if len(examples) > count else examples,
            vectors=torch.cat([model.current_vectors(rows[at : at + _ROWS_AT_ONCE]) for at in starts]),
            target_ends=np.cumsum(self.statistics.positive_counts()),
            # An epoch of fewer examples is one batch of them.
            batch_size=min(batch_size, self.batches.example_count),
            seed=self.request.seed,
        )

    def _cost(self, objective: Objective, dense: bool) -> Cost:
        return step_cost(self.model, self.data, self.experiment, objective, dense)

    def _row(self, entry: Entry) -> list[dict[str, Any]]:
        """The measures of one sampler; none, and an entry in `skipped`, if it can't be measured."""
        try:
            sampler = self._build(entry)
            measures = self._measures(entry, sampler, self.queries)
            cost = self._cost(SampledObjective(SAMPLED, sampler, self.items), entry.dense)
        except TrainingError as error:
            self._skip(entry, str(error))
            return []
        return [{**_named(entry), **measures, **asdict(cost)}]

    def _of_batch(self, loss: DrawLossSettings, size: int) -> dict[str, Any]:
        """The measures of a loss over the candidates of a batch, whose frequencies are known."""
        entry = Entry("in-batch losses", None, InBatchConfig(), loss)
        return self._measures(entry, self._build(entry), replace(self.queries, batch_size=size))

    def _build(self, entry: Entry) -> Sampler:
        """The sampler over the run's item vectors. Raises TrainingError with the reason to skip it."""
        settings = entry.settings
        reason = (
            refusal(SAMPLED, settings)
            or scoring_refusal(SAMPLED, settings, self.scoring)
            or self._too_large(getattr(settings, "features", 0))
        )
        if reason:
            raise TrainingError(reason)
        sampler = settings.build(self.context)
        sampler.refresh(self.queries.vectors)
        return sampler

    def _too_large(self, features: int) -> str | None:
        """The reason to skip a sampler that stores so many features of each item; None if it is measured."""
        needed = 8 * features * self.items
        if needed <= _MOST_FEATURE_BYTES:
            return None
        return (
            f"{features} features of {self.items:,} items would take {needed / 1e9:.2f} GB; the limit of a "
            f"report is {_MOST_FEATURE_BYTES / 1e9:.2f} GB."
        )

    def _skip(self, entry: Entry, reason: str) -> None:
        """Record a skipped sampler and its size."""
        sizes = self.skipped.setdefault((entry.label, reason), [])
        sizes += [] if entry.negatives is None else [str(entry.negatives)]

    def _measures(self, entry: Entry, sampler: Sampler, queries: Queries) -> dict[str, Any]:
        examples, vectors, draws = queries.examples, queries.vectors, self.request.draws
        if entry.dense:
            affordable = _DENSE_SCORES // (self.query_count * self.items)
            draws = min(draws, max(_FEWEST_DRAWS, affordable))
        draw, loss = drawer(entry, sampler, queries), entry.loss.build(self.items)
        error = gradient_error(examples, vectors, self.scoring, draw, draws, loss)
        kl = divergence(examples, vectors, self.scoring, proposal(entry, sampler, queries))
        figures = {"kl": kl, **asdict(error)}
        # JSON has no infinity.
        return {
            name: None if value is None or not math.isfinite(value) else value
            for name, value in figures.items()
        }

    def _staleness(self) -> list[dict[str, Any]]:
        """Gradient errors after further training, by the maximum age of the sampler's item vectors."""
        built: list[tuple[int, Entry, Sampler]] = []
        for age in self.request.refresh_every:
            for entry in stale_entries(age):
                try:
                    built.append((age, entry, self._build(entry)))
                except TrainingError as error:
                    self._skip(replace(entry, label=f"{entry.label}, refresh_every"), str(error))
        followers = {
            age: [sampler for other, _, sampler in built if other == age]
            for age in self.request.refresh_every
        }
        moved = self._queries(moved_model(self.run, self.data, followers))
        distance = (moved.vectors - self.queries.vectors).norm() / self.queries.vectors.norm()
        rows = [
            {
                **_named(entry),
                "refresh_every": age,
                "steps": max(self.request.refresh_every),
                "moved": float(distance),
                **self._measures(entry, sampler, moved),
            }
            for age, entry, sampler in built
        ]
        return sorted(rows, key=lambda row: (row["sampler"], row["refresh_every"]))


def _named(entry: Entry) -> dict[str, Any]:
    settings = entry.settings.model_dump(mode="json")
    kind = entry.settings.kind
    return {"sampler": entry.label, "kind": kind, "negatives": entry.negatives, "settings": settings}
