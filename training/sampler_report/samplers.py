"""`turret report samplers`: divergence, gradient error and cost of each sampler on a trained run."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turret.data.files import replace_json
from turret.data.prepared import PreparedData
from turret.data.progress import progress
from turret.training.batches.batches import PreparedStatistics, TrainingBatches
from turret.training.config.experiment import refusal, scoring_refusal
from turret.training.errors import TrainingError
from turret.training.loop.trainer import pick_device
from turret.training.losses.catalog import CatalogObjective, full_softmax
from turret.training.losses.loss import settings_of
from turret.training.losses.sampled import sampled_softmax, sampled_softmax_corrected
from turret.training.objectives.sampled import DrawLossSettings, SampledObjective
from turret.training.process import naming_lack_of_memory
from turret.training.randomness import stream
from turret.training.run import SAMPLERS as REPORT
from turret.training.run import SAMPLERS_PICTURE, Run
from turret.training.sampler_report.measures import Queries, divergence, gradient_error, step_cost
from turret.training.sampler_report.shown import plot_report, report_table
from turret.training.samplers.core.contract import Draw, DrawContext, Sampler
from turret.training.samplers.core.settings import BuildContext, SamplerSettings
from turret.training.samplers.from_batch.in_batch import InBatchConfig, InBatchSampler
from turret.training.samplers.registry import SAMPLERS
from turret.training.used_items import Targets

# These limit the Q x N scores that are held at once, the scores of all draws of a sampler over the whole
# catalog, the B x N probabilities of a sampler that draws for the batch, and the B x K scores of a queue.
_MOST_SCORES, _DENSE_SCORES, _MOST_PROBABILITIES, _MOST_QUEUED_SCORES = 2**24, 2**30, 2**24, 2**25
_FEWEST_QUERIES, _FEWEST_DRAWS = 8, 20
_MOST_OTHERS, _ROWS_AT_ONCE, _USERS_AT_ONCE = 16_384, 65_536, 4096
# The features of all items may take so much memory.
_MOST_FEATURE_BYTES = 2**30
_FORMATS = (".png", ".svg", ".pdf")

# The settings that are compared with the default ones, by a suffix of their label.
_VARIANTS: dict[str, dict[str, dict[str, object]]] = {
    "uniform": {"no positive": {"exclude_positive": True}},
    "log_uniform": {"unique": {"unique": True}},
    "in_batch": {"unique": {"unique": True}},
    "quadratic": {"no positive": {"exclude_positive": True}, "per batch": {"per": "batch"}},
    "softmax": {"no positive": {"exclude_positive": True}},
}
SAMPLED = settings_of(sampled_softmax)()
_CORRECTED = settings_of(sampled_softmax_corrected)
IN_BATCH_LOSSES: dict[str, DrawLossSettings] = {
    "sampled_softmax": SAMPLED,
    "sampled_softmax_corrected": _CORRECTED(),
    "sampled_softmax_corrected, hits kept": _CORRECTED(remove_accidental_hits=False),
}


@dataclass(frozen=True)
class ReportRequest:
    """Sizes of a report: K negatives, Q queries, draws of each, and batches."""

    negatives: tuple[int, ...] = (4, 16, 64, 256)
    queries: int = 64
    draws: int = 200
    batch_sizes: tuple[int, ...] = (1024, 8192)
    seed: int = 0


@dataclass(frozen=True)
class Entry:
    """One sampler of a report; `negatives` is None where the batch determines the number of candidates."""

    label: str
    negatives: int | None
    settings: SamplerSettings
    loss: DrawLossSettings = SAMPLED

    @property
    def by_batch(self) -> bool:
        """Whether the draw depends on all examples of the batch."""
        return any(part.reads_batch for part in self.settings.members)

    @property
    def dense(self) -> bool:
        """Whether each draw scores the whole catalog."""
        return any(part.scores_catalog for part in self.settings.members)


def entries(sizes: Sequence[int], batch_size: int) -> Iterator[Entry]:
    """The variants of all samplers at all sizes, then those whose size follows from the batch."""
    kinds = {kind: settings.model_fields for kind, settings in SAMPLERS.items() if settings.alone}
    sized = [kind for kind, fields in kinds.items() if kind == "mixed" or "negatives" in fields]
    for kind in (*sized, *(kind for kind in kinds if kind not in sized)):
        for label in _variants(kind, sizes[0], batch_size):
            for size in sizes if kind in sized else sizes[:1]:
                settings = _variants(kind, size, batch_size)[label]
                yield Entry(label, size if kind in sized else None, settings)


def _variants(kind: str, negatives: int, batch_size: int) -> dict[str, SamplerSettings]:
    """The variants of a sampler by label, with `negatives` candidates where that is a setting."""
    settings_from = SAMPLERS[kind].model_validate
    if kind == "mixed":
        uniform = {"kind": "uniform", "negatives": negatives}
        return {
            "mixed": settings_from({"parts": ["in_batch", uniform]}),
            "mixed, mined": settings_from({"parts": [uniform, "mined"]}),
        }
    if kind == "cross_batch":
        batches = max(1, min(4, _MOST_QUEUED_SCORES // batch_size**2))
        return {f"cross_batch of {batches}": settings_from({"batches": batches})}
    size = {"negatives": negatives} if "negatives" in SAMPLERS[kind].model_fields else {}
    changed = {f"{kind}, {suffix}": settings for suffix, settings in _VARIANTS.get(kind, {}).items()}
    return {label: settings_from({**size, **settings}) for label, settings in {kind: {}, **changed}.items()}


class SamplerReport:
    """Measures every sampler that can be built for a run, with the sampled softmax on real queries."""

    def __init__(self, run: Run, data: PreparedData, request: ReportRequest) -> None:
        """Open the run's model. Raises TrainingError without one that ranks by an inner product."""
        self.run, self.data, self.request = run, data, request
        self.experiment = run.experiment
        loss = self.experiment.objective.loss
        if not loss.servable:
            raise TrainingError(
                f"{run.folder}: objective.loss = {loss.kind!r} does not rank items by an "
                "inner product, so samplers have no softmax over scores to be compared with; name a run with "
                "another loss."
            )
        device = pick_device(self.experiment.training.device)
        self.scoring = self.experiment.tower.scoring
        self.model = run.open_model(data).to(device)
        self.model.pairs = None  # training draws by the scores of the towers
        batches = TrainingBatches.of(self.experiment, data, _USERS_AT_ONCE)
        statistics = PreparedStatistics(
            data,
            self.experiment.tower.user.context,
            self.experiment.training.since,
            Targets.of(self.experiment, data),
        )
        self.context = BuildContext(statistics, self.scoring, request.seed, device)
        self.items = len(data.item_ids)
        affordable = max(_FEWEST_QUERIES, _MOST_SCORES // self.items)
        count = min(request.queries, batches.example_count, affordable)
        # An epoch of fewer examples is one batch of them.
        self.batch_size = min(self.experiment.training.batch_size, batches.example_count)
        others = min(_MOST_OTHERS, 4 * self.experiment.training.batch_size)
        random = stream(request.seed, "report queries", 0)
        read = Queries.read(self.model, batches, count + others, random)
        # The Q queries, and the other examples of their batches.
        self.queries = read.take(slice(0, count))
        self.others = read.take(slice(count, None)) if len(read) > count else read
        rows = torch.arange(self.items, device=device)
        self.vectors = torch.cat(
            [self.model.current_vectors(block) for block in torch.split(rows, _ROWS_AT_ONCE)]
        )
        # The running sums of how often each item is a training target.
        self.target_ends = np.cumsum(statistics.positive_counts())
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
        whole = CatalogObjective(settings_of(full_softmax)())
        full = step_cost(self.model, self.data, self.experiment, whole, dense=True)
        with progress("measuring in-batch losses"):
            in_batch = [
                {"loss": label, "batch_size": size, **self._measures(entry, self._build(entry), size)}
                for size in request.batch_sizes
                for label, loss in IN_BATCH_LOSSES.items()
                for entry in [Entry("in-batch losses", None, InBatchConfig(), loss)]
            ]
        return {
            "run": str(self.run.folder),
            "items": self.items,
            "batch_size": batch_size,
            "queries": len(self.queries),
            "queries_asked": request.queries,
            "draws": request.draws,
            "seed": request.seed,
            "full_softmax": full,
            "samplers": rows,
            "in_batch_losses": in_batch,
            "skipped": [
                {"sampler": label, "negatives": ", ".join(sizes), "reason": reason}
                for (label, reason), sizes in self.skipped.items()
            ],
        }

    def _row(self, entry: Entry) -> list[dict[str, Any]]:
        """The measures of one sampler; none, and an entry in `skipped`, if it can't be measured."""
        try:
            sampler = self._build(entry)
            measures = self._measures(entry, sampler, self.batch_size)
            objective = SampledObjective(SAMPLED, sampler, self.items)
            cost = step_cost(self.model, self.data, self.experiment, objective, entry.dense)
        except TrainingError as error:
            sizes = self.skipped.setdefault((entry.label, str(error)), [])
            sizes += [] if entry.negatives is None else [str(entry.negatives)]
            return []
        settings, kind = entry.settings.model_dump(mode="json"), entry.settings.kind
        named = {"sampler": entry.label, "kind": kind, "negatives": entry.negatives, "settings": settings}
        return [{**named, **measures, **cost}]

    def _build(self, entry: Entry) -> Sampler:
        """The sampler over the run's item vectors. Raises TrainingError with the reason to skip it."""
        settings = entry.settings
        if reason := refusal(SAMPLED, settings) or scoring_refusal(SAMPLED, settings, self.scoring):
            raise TrainingError(reason)
        features = getattr(settings, "features", 0)
        if (needed := 8 * features * self.items) > _MOST_FEATURE_BYTES:
            raise TrainingError(
                f"{features} features of {self.items:,} items would take {needed / 1e9:.2f} GB; the limit of "
                f"a report is {_MOST_FEATURE_BYTES / 1e9:.2f} GB."
            )
        sampler = settings.build(self.context)
        sampler.refresh(self.vectors)
        return sampler

    def _measures(self, entry: Entry, sampler: Sampler, batch_size: int) -> dict[str, Any]:
        draws = self.request.draws
        if entry.dense:
            draws = min(draws, max(_FEWEST_DRAWS, _DENSE_SCORES // (len(self.queries) * self.items)))
        draw, loss = self._drawer(entry, sampler, batch_size), entry.loss.build(self.items)
        error = gradient_error(self.queries, self.vectors, self.scoring, draw, draws, loss)
        proposal = self._proposal(entry, sampler, batch_size)
        kl = divergence(self.queries, self.vectors, self.scoring, proposal)
        # JSON has no infinity.
        return {
            name: None if value is None or not math.isfinite(value) else value
            for name, value in {"kl": kl, **error}.items()
        }

    def _batch(self, random: np.random.Generator, size: int) -> Queries:
        """A batch of `size` examples with positives drawn anew from the training part.

        New positives keep the draws independent; no sampler reads which example a positive belongs to.
        """
        indices = torch.from_numpy(random.integers(len(self.others), size=size)).to(self.vectors.device)
        drawn = random.integers(self.target_ends[-1], size=size)
        positives = torch.from_numpy(np.searchsorted(self.target_ends, drawn, side="right"))
        return replace(self.others.take(indices), positives=positives.to(self.vectors.device))

    def _context(self, examples: Queries, random: np.random.Generator) -> DrawContext:
        vectors = self.vectors[examples.positives]
        return DrawContext(random, examples.last_items, vectors, self.vectors.__getitem__)

    def _drawer(self, entry: Entry, sampler: Sampler, batch_size: int) -> Callable[[int], Draw]:
        """Return `draw_once(n)`, which gives the n-th independent draw for the Q queries."""
        queries, members = self.queries, entry.settings.members
        # Draws of a queue are independent if all its batches have passed between them.
        apart = 1 + max(part.remembered_batches for part in members)

        def for_queries(number: int) -> Draw:
            random = stream(self.request.seed, f"report {entry.label}", number)
            return sampler.draw(queries.users, queries.positives, self._context(queries, random))

        def with_batch(number: int) -> Draw:
            for nth in range(number * apart, (number + 1) * apart):
                random = stream(self.request.seed, f"report {entry.label}", nth)
                batch = self._batch(random, batch_size)
                draw = sampler.draw(batch.users, batch.positives, self._context(batch, random))
            # Candidates are masked as if each query were the first example of the batch.
            valid = draw.ids != queries.positives.unsqueeze(1)
            if isinstance(members[0], InBatchConfig) and not members[0].unique:
                # One of the B positives of a query's batch is its own, and is masked.
                valid[:, 0] = False
            counts, held = torch.full(queries.positives.shape, float("nan"), device=valid.device), None
            if isinstance(sampler, InBatchSampler):
                counts = sampler.log_expected(batch.users, batch.positives, queries.positives)
                held = (torch.arange(len(counts), device=valid.device), torch.zeros_like(queries.positives))
            draw = replace(draw, valid=valid, positive_log_count=counts, held=held, stored=None)
            return draw.keeping_hits(queries.positives) if entry.loss.keeps_hits else draw

        return with_batch if entry.by_batch else for_queries

    def _proposal(self, entry: Entry, sampler: Sampler, batch_size: int) -> Tensor:
        """The proposal probabilities q [Q, N] of the queries."""
        random = stream(self.request.seed, f"report proposal {entry.label}", 0)
        if not entry.by_batch:
            return sampler.probability(self.queries.users, self._context(self.queries, random))
        batch = self._batch(random, min(batch_size, max(1, _MOST_PROBABILITIES // self.items)))
        q = sampler.probability(batch.users, self._context(batch, random))
        return q[:1].expand(len(self.queries), -1)


def report_samplers(
    folder: Path,
    data: Path | None,
    request: ReportRequest,
    output: Path | None,
    as_json: bool,
    show_all: bool = False,
) -> None:
    """Measure the samplers on a run, store JSON and a plot in its folder, and print tables.

    Raises:
        TrainingError: the sizes exceed memory, the run can't be measured, or `output` has an unknown format.
    """
    run = Run.read(folder)
    picture = output or folder / SAMPLERS_PICTURE
    if picture.suffix.lower() not in _FORMATS:
        raise TrainingError(f"--output {picture}: the name must end in .png, .svg or .pdf.")
    with naming_lack_of_memory(f"{folder}: the report does not fit into memory; lower --negatives."):
        report = SamplerReport(run, run.open_data(data), request).measure()
    text = replace_json(folder / REPORT, report)
    plot_report(report, picture)
    if as_json:
        print(text)
    else:
        print(f"Plot: {picture}. Data: {folder / REPORT}.")
        print(report_table(report, show_all))
