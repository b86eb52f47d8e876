"""Batches of training examples: spans in random order, collated in a thread."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.data.prepared import Negatives, PreparedData
from turret.data.ranges import ranges
from turret.tower.layers.packed import PackedHistories
from turret.tower.towers.user import SETS, Context
from turret.training.batches.event_times import Positions, first_events, packed_times
from turret.training.batches.spans import Spans, cut_spans
from turret.training.config.experiment import ExperimentConfig
from turret.training.errors import TrainingError
from turret.training.used_items import Targets

AHEAD = 2
_USERS_A_BLOCK = 65536


def padded_negatives(negatives: Negatives, targets: Positions) -> tuple[Tensor, Tensor]:
    """The negatives of the events at `targets` [B], in rows padded to the longest.

    Returns:
        int64 [B, K], the item rows, -1 for padding; and float32 [B, K], their weights: ones for data without
        weights, zeros for padding.
    """
    firsts = np.asarray(negatives.offsets[targets])
    lengths = np.asarray(negatives.offsets[targets + 1]) - firsts
    positions = ranges(firsts, lengths)
    present = np.arange(lengths.max(initial=0)) < lengths[:, None]
    rows = np.full(present.shape, -1, dtype=np.int64)
    rows[present] = negatives.items[positions]
    weights = present.astype(np.float32)
    if negatives.weights is not None:
        weights[present] = negatives.weights[positions]
    return torch.from_numpy(rows), torch.from_numpy(weights)


def negative_count(negatives: Negatives, begins: Positions, ends: Positions) -> int:
    """How many negatives the events from `begins` [U] to `ends` [U] (exclusive) have."""
    return int((negatives.offsets[ends] - negatives.offsets[begins]).sum())


def packed_kinds(data: PreparedData, events: Positions) -> Tensor:
    """The codes of the kinds of events at `events` [P], in data with kinds: int64 [P]."""
    assert data.kinds is not None
    return torch.from_numpy(data.kinds[events].astype(np.int64))


@dataclass(frozen=True)
class Batch:
    """One step's examples.

    Attributes:
        histories: the history of each example.
        owners: int64 [P], the user row of each packed event.
        targets: int64 [B], the next item row of each example.
        weights: float32 [B], the weight of each target event; ones for data without weights.
        negatives: int64 [B, K], the given negatives of each target, -1 for none; None where they aren't read.
        negative_weights: float32 [B, K], the weights of the negatives.
        groups: int64 [B], the number of each query's answer if items may share answers; else None.
        propensities: float32 [B], those of the targets in the answers that led to them, NaN for none; None
            for data without an answer log.
        is_padding: whether the examples have weight zero and stand in for no examples: a process without a
            part of a batch still takes part in the step.
    """

    histories: PackedHistories
    owners: Tensor
    targets: Tensor
    weights: Tensor
    negatives: Tensor | None = None
    negative_weights: Tensor | None = None
    groups: Tensor | None = None
    propensities: Tensor | None = None
    is_padding: bool = False

    @property
    def size(self) -> int:
        """The number of examples; zero for padding."""
        return 0 if self.is_padding else len(self.targets)

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        return self._moved(self.histories.to(device), lambda part: part.to(device, non_blocking=True))

    def pinned(self) -> "Batch":
        """The same batch in pinned memory."""
        return self._moved(self.histories.pinned(), Tensor.pin_memory)

    def as_padding(self) -> "Batch":
        """The same examples with weight zero."""
        zeros = None if self.negative_weights is None else torch.zeros_like(self.negative_weights)
        weights = torch.zeros_like(self.weights)
        return replace(self, weights=weights, negative_weights=zeros, is_padding=True)

    def _moved(self, histories: PackedHistories, move: Callable[[Tensor], Tensor]) -> "Batch":
        moved: dict[str, Any] = {
            name: move(part) for name, part in vars(self).items() if isinstance(part, Tensor)
        }
        return replace(self, histories=histories, **moved)


class TrainingBatches:
    """The training part of prepared data as shuffled batches, determined by the random generator of an epoch.

    `context` decides the window of a target, of at most `history_length` events (`cut_spans`); up to
    `span_length` consecutive targets of a user share a batch. `times` adds gaps and clocks, `kinds` the kinds
    of the events, `negatives` the given negatives and `contexts` the contexts of the targets. Targets before
    `start_time` are left out.
    """

    def __init__(
        self,
        data: PreparedData,
        batch_size: int,
        history_length: int,
        span_length: int,
        context: Context = "causal_window",
        start_time: str | float | None = None,
        times: bool = False,
        negatives: bool = False,
        kinds: bool = False,
        targets: Targets | None = None,
        contexts: bool = False,
    ) -> None:
        check_trainable(data, context)
        self.data = data
        self.targets = targets or Targets(data, _of_target_kinds(data))
        self.times, self.kinds = times, kinds and data.kinds is not None
        self.contexts = data.contexts if contexts else None
        self.negatives = data.negatives if negatives else None
        self.groups = data.query_groups()
        self.batch_size, self.history_length, self.context = batch_size, history_length, context
        begins, ends = (np.asarray(bound) for bound in data.bounds("train"))
        longest = min(span_length, batch_size)
        if context == "full_set":
            # All targets of a user share one span, as the user's vector does not depend on the target.
            longest = max(1, int((ends - begins).max(initial=0)))
        self.spans = cut_spans(begins, ends, context, longest, history_length)
        limit = None if context in (*SETS, "none") else history_length
        if start_time is not None:
            self.spans = self.spans.starting_at(first_events(data, start_time), limit)
        if self.targets.chosen is not None:
            self.spans = self.spans.of_targets(np.flatnonzero(self.targets.chosen), limit)
        if self.targets.first_uses is not None:
            self.spans = _with_others(self.spans, self.targets)
        self.example_count = int(self.spans.counts.sum())
        if not self.example_count:
            since = "" if start_time is None else f"training.since = {start_time!r}: "
            what, remedies = "an event", "give an earlier time, or newer data"
            if data.kinds is not None:
                what, remedies = (
                    "an event of a target kind",
                    f"{remedies}, or a training.signal_weight above 0",
                )
            raise TrainingError(
                f"{since}no user has {what}{' from then on' if since else ''} and an earlier one in the "
                f"training part of {data.folder}; {remedies}."
            )
        self.last_time = self.targets.newest
        self.period = max(self.last_time - float(data.times[begins[ends > begins]].min()), 1.0)

    @classmethod
    def of(
        cls,
        experiment: ExperimentConfig,
        data: PreparedData,
        batch_size: int | None = None,
        targets: Targets | None = None,
    ) -> "TrainingBatches":
        """The batches of an experiment; `batch_size` replaces that of the experiment."""
        settings, user = experiment.training, experiment.tower.user
        size = batch_size or settings.batch_size
        return cls(
            data,
            size,
            user.history_length,
            settings.span_length,
            user.context,
            settings.since,
            user.reads_times,
            experiment.objective.candidates != "drawn",
            user.kinds,
            targets or Targets.of(experiment, data),
            bool(user.context_features),
        )

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches of an epoch; the actual number may be one less."""
        return -(-self.example_count // self.batch_size)

    def epoch(
        self, order: np.random.Generator, first: int = 0, share: tuple[int, int] = (0, 1)
    ) -> Iterator[Batch]:
        """The batches of one epoch, starting with batch `first`.

        Whole spans fill a batch until it holds at least `batch_size` examples. A `share` of (i, n) yields
        part i of n of each batch; the parts have nearly equal numbers of examples.
        """
        spans = self.spans.take(order.permutation(len(self.spans)))
        lengths = spans.counts
        numbers = (np.cumsum(lengths) - lengths) // self.batch_size
        cuts = np.flatnonzero(np.diff(numbers)) + 1
        for indices in np.split(np.arange(len(spans)), cuts)[first:]:
            batch = spans.take(indices)
            yield self.collate(batch) if share == (0, 1) else self._share(batch, *share)

    def _share(self, spans: Spans, part: int, parts: int) -> Batch:
        indices = spans.share(part, parts)
        if len(indices):
            return self.collate(spans.take(indices))
        return self.collate(spans.take(np.array([0]))).as_padding()

    def collate(self, spans: Spans) -> Batch:
        """Pack the events that the spans read, with a window for each target."""
        lengths = spans.counts
        targets = self.targets.only(ranges(spans.firsts, spans.ends - spans.firsts))
        weights = torch.from_numpy(self.targets.weights(targets))
        negatives, negative_weights = None, None
        if self.negatives is not None:
            negatives, negative_weights = padded_negatives(self.negatives, targets)
        owners, read = np.repeat(spans.users, lengths), self._count(spans.contexts, spans.stops)
        logged = self.data.propensities
        return Batch(
            histories=self._histories(spans, targets, read),
            owners=torch.from_numpy(np.repeat(spans.users, read)),
            targets=torch.from_numpy(self.data.event_items[targets].astype(np.int64)),
            weights=weights,
            negatives=negatives,
            negative_weights=negative_weights,
            groups=None if self.groups is None else torch.from_numpy(self.groups[owners]),
            propensities=None if logged is None else torch.from_numpy(logged[targets]),
        )

    def _count(self, firsts: Positions, ends: Positions) -> Positions:
        """How many of the events from `firsts` [B] to `ends` [B] (exclusive) are read: int64 [B]."""
        return ends - firsts if self.targets.first_uses is None else self.targets.items_between(firsts, ends)

    def _histories(self, spans: Spans, targets: Positions, read: Positions) -> PackedHistories:
        """The windows of `targets` [B] among the `read` [S] events of each of their spans."""
        lengths = spans.counts
        bases = np.repeat(np.cumsum(read) - read, lengths)
        positions = bases + self._count(np.repeat(spans.contexts, lengths), targets)
        if self.context in SETS:
            starts, ends, left_out = bases, bases + np.repeat(read, lengths), None
            if self.context == "leave_one_out":
                left_out = torch.from_numpy(np.where(positions < bases, -1, positions))
        elif self.context == "none":
            starts, ends, left_out = bases, bases, None
        else:
            starts, ends, left_out = np.maximum(bases, positions - self.history_length), positions, None
        ages = (self.last_time - self.data.times[targets]) / self.period
        gaps, clocks = None, None
        if self.times:
            gaps, clocks = packed_times(self.data, spans.users, spans.contexts, spans.stops)
        events = ranges(spans.contexts, spans.stops - spans.contexts)
        if self.targets.first_uses is not None:
            events = events[self.targets.first_uses[events]]
        return PackedHistories(
            rows=torch.from_numpy(self.data.event_items[events].astype(np.int64)),
            starts=torch.from_numpy(starts),
            ends=torch.from_numpy(ends),
            users=torch.from_numpy(np.repeat(spans.users, lengths)),
            ages=torch.from_numpy(ages.astype(np.float32)),
            left_out=left_out,
            gaps=gaps,
            clocks=clocks,
            kinds=packed_kinds(self.data, events) if self.kinds else None,
            contexts=None
            if self.contexts is None
            else torch.from_numpy(self.contexts[targets].astype(np.int64)),
        )


def check_trainable(data: PreparedData, context: Context) -> None:
    """Raise TrainingError for data with one item, without an example, or of another kind than the tower."""
    if data.has_queries != (context == "none"):
        holds, kind, experiment = (
            ("queries", "of kind 'query'", "questions")
            if data.has_queries
            else ("histories", "of another kind than 'query'", "youtubednn")
        )
        raise TrainingError(
            f"{data.folder} holds {holds}, which need a user tower {kind}; train an experiment such as "
            f"{experiment}, or set tower.user.kind."
        )
    if len(data.item_ids) < 2:
        raise TrainingError(
            f"{data.folder}: the catalog has one item, and a ranking needs two; prepare data with more items."
        )
    starts, ends = (np.asarray(bound) for bound in data.bounds("train"))
    if (ends - starts).max(initial=0) < (1 if data.has_queries else 2):
        raise TrainingError(
            f"{data.folder}: no user has two training events, so there is nothing to predict; "
            "prepare data with longer histories or another split."
        )


def target_counts(
    data: PreparedData,
    context: Context = "causal_window",
    start_time: str | float | None = None,
    targets: Targets | None = None,
) -> Positions:
    """How often each item is one of the training `targets` in that context: int64 [N].

    Events without a context (a user's first or only event) and events before `start_time` are no targets. By
    default `targets` are all events, or all events of target kinds in data with kinds.
    """
    targets = targets or Targets(data, _of_target_kinds(data))
    begins, ends = (np.asarray(bound) for bound in data.bounds("train"))
    longest = max(1, int((ends - begins).max(initial=0)))
    spans = cut_spans(begins, ends, context, longest, longest)
    if start_time is not None:
        spans = spans.starting_at(first_events(data, start_time), None)
    if targets.first_uses is not None:
        spans = _with_others(spans, targets)
    counts = np.zeros(len(data.item_ids), dtype=np.int64)
    for first in range(0, len(spans), _USERS_A_BLOCK):
        some = slice(first, first + _USERS_A_BLOCK)
        positions = targets.only(ranges(spans.firsts[some], spans.counts[some]))
        counts += np.bincount(data.event_items[positions], minlength=len(counts))
    return counts


def _with_others(spans: Spans, targets: Targets) -> Spans:
    """Drop the spans of users who used a single item, where histories are sets that have each item once."""
    return spans.take(np.flatnonzero(targets.items_between(spans.contexts, spans.stops) > 1))


def _of_target_kinds(data: PreparedData) -> NDArray[np.bool_] | None:
    return None if data.kinds is None else data.are_targets(slice(None))


def prefetched(batches: Iterator[Batch], device: torch.device) -> Iterator[Batch]:
    """Yield the same batches on `device`; a thread makes up to AHEAD batches before they are needed.

    This suits devices other than the CPU, where waking a thread costs as much as making a batch. For CUDA,
    batches are copied from pinned memory while the device computes. An error is raised in place of its batch.
    """

    def make() -> Batch | None:
        batch = next(batches, None)
        return batch.pinned() if batch is not None and device.type == "cuda" else batch

    with ThreadPoolExecutor(1, "turret-batches") as thread:
        pending: deque[Future[Batch | None]] = deque(thread.submit(make) for _ in range(AHEAD + 1))
        try:
            while (batch := pending.popleft().result()) is not None:
                pending.append(thread.submit(make))
                yield batch.to(device)
        finally:
            thread.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class PreparedStatistics:
    """Item counts of `data`, where towers read histories as `context` says.

    `start_time` is the start of training: only events from then on are positives. `targets` are the events
    that the towers learn, by default all events of target kinds.
    """

    data: PreparedData
    context: Context = "causal_window"
    start_time: str | float | None = None
    targets: Targets | None = None

    @property
    def item_count(self) -> int:
        """The number of items, N."""
        return len(self.data.item_ids)

    def item_counts(self) -> Positions:
        """How many training events of target kinds each item has: int64 [N]."""
        return self.data.item_counts()

    def target_counts(self) -> Positions:
        """How many training events of each item can be predicted, at any time: int64 [N]."""
        return target_counts(self.data, self.context, targets=self.targets)

    def positive_counts(self) -> Positions:
        """How many training examples have each item as their positive: int64 [N]."""
        return target_counts(self.data, self.context, self.start_time, self.targets)

    def bigram_counts(self) -> tuple[Positions, Positions]:
        """The sorted pairs previous * N + next of consecutive events, int64 [P], and their counts [P]."""
        pairs, counts = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        starts, ends = self.data.bounds("train")
        for first in range(0, len(starts), _USERS_A_BLOCK):
            block = slice(first, first + _USERS_A_BLOCK)
            begins, lengths = np.asarray(starts[block]), np.asarray(ends[block] - starts[block])
            positions = ranges(begins, np.maximum(lengths - 1, 0))
            items, following = self.data.event_items[positions], self.data.event_items[positions + 1]
            pairs, counts = _added(pairs, counts, items.astype(np.int64) * self.item_count + following)
        return pairs, counts


def _added(pairs: Positions, counts: Positions, more: Positions) -> tuple[Positions, Positions]:
    """The distinct pairs and their counts, after counting each of `more` as well."""
    together = np.concatenate([pairs, more])
    once = np.concatenate([counts, np.ones(len(more), dtype=np.int64)])
    distinct, positions = np.unique(together, return_inverse=True)
    # Sums of float64 are exact far beyond any number of events.
    return distinct, np.bincount(positions, weights=once, minlength=len(distinct)).astype(np.int64)
