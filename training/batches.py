"""Training examples from packed histories: every position of a history is one, and nothing is padded."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data.ranges import ranges
from data.sequences import PreparedData
from tower.packed import PackedHistories
from training.config import ExperimentConfig
from training.errors import TrainingError
from training.since import first_since

# User towers that read a run of events once for all of its examples.
READ_FROM_A_START = ("recurrent", "transformer")


@dataclass(frozen=True)
class Batch:
    """One step's examples.

    Attributes:
        histories: what each example has read.
        owners: int64 [P], the user row of each packed event.
        targets: int64 [B], the item row that came next.
        weights: float32 [B], the weight of each target event (ones without weights).
    """

    histories: PackedHistories
    owners: Tensor
    targets: Tensor
    weights: Tensor

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        histories = PackedHistories(
            **{name: column.to(device) for name, column in vars(self.histories).items()}
        )
        return Batch(histories, self.owners.to(device), self.targets.to(device), self.weights.to(device))


@dataclass(frozen=True)
class Spans:
    """Runs of consecutive targets of one user each; all places count events of the whole log.

    Attributes:
        users: int64 [S], the user row.
        contexts: int64 [S], the first event that the span's first target may read.
        firsts: int64 [S], the first target.
        ends: int64 [S], one past the last target.
    """

    users: NDArray[np.int64]
    contexts: NDArray[np.int64]
    firsts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.users)

    def take(self, places: NDArray[np.int64]) -> "Spans":
        """The spans at `places`, in that order."""
        return Spans(*(column[places] for column in (self.users, self.contexts, self.firsts, self.ends)))

    def since(self, firsts: NDArray[np.int64], history_length: int) -> "Spans":
        """The same spans with the targets from `firsts` [U] of their user on; what is older is only read."""
        firsts = np.maximum(self.firsts, firsts[self.users])
        contexts = np.maximum(self.contexts, firsts - history_length)
        return Spans(self.users, contexts, firsts, self.ends).take(np.flatnonzero(self.ends > firsts))


def cut_spans(begins: NDArray[np.int64], ends: NDArray[np.int64], longest: int, history_length: int) -> Spans:
    """Cut each user's targets into spans of at most `longest`.

    The first event of a history is nobody's target: nothing was read before it, and the service answers
    a user without a history with popular items, not with the tower.

    Args:
        begins: [U] each user's first event.
        ends: [U] one past each user's last training event.
        longest: the most targets of one span.
        history_length: how many events a target may read.
    """
    targets = np.maximum(ends - begins - 1, 0)
    pieces = -(-targets // longest)
    users = np.repeat(np.arange(len(begins), dtype=np.int64), pieces)
    nth = ranges(np.zeros(len(begins), dtype=np.int64), pieces)
    firsts = begins[users] + 1 + nth * longest
    return Spans(
        users=users,
        contexts=np.maximum(begins[users], firsts - history_length),
        firsts=firsts,
        ends=np.minimum(firsts + longest, ends[users]),
    )


def cut_segments(begins: NDArray[np.int64], ends: NDArray[np.int64], history_length: int) -> Spans:
    """Cut each user's events into spans whose targets all read from the same place on.

    Each has at most `history_length` targets; the newest are cut first, so that what is left over are a
    user's oldest events. Arguments are those of `cut_spans`.
    """
    targets = np.maximum(ends - begins - 1, 0)
    pieces = -(-targets // history_length)
    users = np.repeat(np.arange(len(begins), dtype=np.int64), pieces)
    nth = ranges(np.zeros(len(begins), dtype=np.int64), pieces)
    span_ends = ends[users] - (pieces[users] - 1 - nth) * history_length
    firsts = np.maximum(begins[users] + 1, span_ends - history_length)
    return Spans(users=users, contexts=firsts - 1, firsts=firsts, ends=span_ends)


class TrainingBatches:
    """The training part of prepared data, as shuffled batches that depend on the seed and the epoch alone.

    Every target reads the `history_length` events before it; `span_length` targets of a user, one after the
    other, share a batch. With `segments` a user's events are cut into runs of `history_length`, and a target
    reads what its own run has before it: all of them pass a tower at once that reads from a start on.
    """

    def __init__(
        self,
        data: PreparedData,
        batch_size: int,
        history_length: int,
        span_length: int,
        segments: bool = False,
        since: str | float | None = None,
    ) -> None:
        self.data = data
        self.batch_size = batch_size
        self.history_length = history_length
        begins, ends = np.asarray(data.offsets[:-1]), np.asarray(data.splits[:, 0])
        if segments:
            self.spans = cut_segments(begins, ends, history_length)
        else:
            self.spans = cut_spans(begins, ends, min(span_length, batch_size), history_length)
        if since is not None:
            self.spans = self.spans.since(first_since(data, since), history_length)
        self.example_count = int((self.spans.ends - self.spans.firsts).sum())
        if not self.example_count:
            if since is not None:
                raise TrainingError(
                    f"training.since = {since!r}: nobody has an event from then on, and one before it to "
                    f"read, in the training part of {data.folder}; give an earlier moment, or newer data."
                )
            raise TrainingError(
                f"{data.folder}: no user has two training events, so there is nothing to predict; "
                "prepare data with longer histories or another split."
            )
        self.last_time, self.period = _training_period(data)

    @classmethod
    def of(
        cls, experiment: ExperimentConfig, data: PreparedData, batch_size: int | None = None
    ) -> "TrainingBatches":
        """The batches that an experiment trains on, or some of another size."""
        settings, user = experiment.training, experiment.tower.user
        size = batch_size or settings.batch_size
        segments = user.kind in READ_FROM_A_START
        return cls(data, size, user.history_length, settings.span_length, segments, settings.since)

    @property
    def steps_per_epoch(self) -> int:
        """How many batches an epoch has; one fewer where the last span closes the last batch early."""
        return -(-self.example_count // self.batch_size)

    def epoch(self, order: np.random.Generator, first: int = 0) -> Iterator[Batch]:
        """The batches of one epoch from the `first` on.

        Whole spans fill a batch until it holds `batch_size` examples; the last span may overshoot.
        """
        spans = self.spans.take(order.permutation(len(self.spans)))
        lengths = spans.ends - spans.firsts
        numbers = (np.cumsum(lengths) - lengths) // self.batch_size
        cuts = np.flatnonzero(np.diff(numbers)) + 1
        for places in np.split(np.arange(len(spans)), cuts)[first:]:
            yield self.collate(spans.take(places))

    def collate(self, spans: Spans) -> Batch:
        """Pack the events that the spans read, and point each target at its window."""
        read = spans.ends - 1 - spans.contexts
        rows = self.data.items[ranges(spans.contexts, read)]
        lengths = spans.ends - spans.firsts
        targets = ranges(spans.firsts, lengths)
        bases = np.repeat(np.cumsum(read) - read, lengths)
        ends = bases + targets - np.repeat(spans.contexts, lengths)
        weights = self.data.weights
        histories = PackedHistories(
            rows=torch.from_numpy(rows.astype(np.int64)),
            starts=torch.from_numpy(np.maximum(bases, ends - self.history_length)),
            ends=torch.from_numpy(ends),
            users=torch.from_numpy(np.repeat(spans.users, lengths)),
            ages=torch.from_numpy(
                ((self.last_time - self.data.times[targets]) / self.period).astype(np.float32)
            ),
        )
        return Batch(
            histories=histories,
            owners=torch.from_numpy(np.repeat(spans.users, read)),
            targets=torch.from_numpy(self.data.items[targets].astype(np.int64)),
            weights=torch.ones(len(targets)) if weights is None else torch.from_numpy(weights[targets]),
        )


def target_counts(data: PreparedData, since: str | float | None = None) -> NDArray[np.int64]:
    """How often each item is a training target: int64 [N]. First events are read, but are nobody's target.

    With `since`, those from that moment on are counted alone.
    """
    begins, ends = np.asarray(data.offsets[:-1]), np.asarray(data.splits[:, 0])
    if since is not None:
        targets = np.maximum(begins + 1, first_since(data, since))
        places = ranges(targets, np.maximum(ends - targets, 0))
        return np.bincount(data.items[places], minlength=len(data.catalogue))
    firsts = data.items[begins[ends > begins]]
    return data.item_counts("train") - np.bincount(firsts, minlength=len(data.catalogue))


def _training_period(data: PreparedData) -> tuple[float, float]:
    """The time of the last training event, and how long before it the first one was (at least 1)."""
    begins, ends = np.asarray(data.offsets[:-1]), np.asarray(data.splits[:, 0])
    used = ends > begins
    last = float(data.times[ends[used] - 1].max())
    first = float(data.times[begins[used]].min())
    return last, max(last - first, 1.0)
