"""Full rankings of the catalog for blocks of users, and the AUC of the items offered to them."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.data.kinds import Seen
from turret.data.prepared import HistoryEnd, Part, PreparedData
from turret.data.ranges import ranges
from turret.tower.config import ScoringConfig
from turret.tower.layers.packed import PackedHistories
from turret.tower.repeats import Slot
from turret.tower.towers.model import TwoTowers, best_scores, served_scores
from turret.training.batches.batches import packed_kinds
from turret.training.batches.event_times import packed_times
from turret.training.errors import TrainingError
from turret.training.evaluation.metrics import Values
from turret.training.evaluation.seen import history_bounds, left_out_pairs, mask, used_pairs
from turret.training.evaluation.top_rows import top_rows
from turret.training.used_items import firsts_of_each

# A block has at most so many users and so many scores: few enough for their memory to be reused.
USERS_A_BLOCK, SCORES_A_BLOCK = 512, 2**22

CatalogScores = Callable[[Tensor, Tensor, ScoringConfig], Tensor]
"""Ranking scores [U, N] from user vectors [U, D] and item vectors [N, D]."""


def histories_of(
    data: PreparedData,
    users: NDArray[np.int64],
    until: HistoryEnd,
    history_length: int,
    times: bool = False,
    kinds: bool = False,
    sets: bool = False,
    contexts: bool = False,
) -> PackedHistories:
    """The newest `history_length` events of each of `users` [U] before `until`, packed.

    With `kinds`, histories have the kinds of `data`; with `sets`, they have only the first of these events of
    each item. With `times`, histories have times, and the request is at the time of the user's next event;
    after the last event, at the end of the log. With `contexts`, the request has the context that
    `PreparedData.request_contexts` assumes.
    """
    starts, ends = history_bounds(data, users, until)
    starts = np.maximum(starts, ends - history_length)
    lengths = ends - starts
    context_rows = data.request_contexts(users, ends) if contexts else None
    gaps, clocks = packed_times(data, users, starts, ends) if times else (None, None)
    events = ranges(starts, lengths)
    if sets:
        firsts = firsts_of_each(data, events, lengths)
        owners = np.repeat(np.arange(len(users)), lengths)[firsts]
        events, lengths = events[firsts], np.bincount(owners, minlength=len(users))
    packed_ends = np.cumsum(lengths)
    return PackedHistories(
        rows=torch.from_numpy(data.event_items[events].astype(np.int64)),
        starts=torch.from_numpy(packed_ends - lengths),
        ends=torch.from_numpy(packed_ends),
        users=torch.from_numpy(users),
        ages=torch.zeros(len(users)),
        gaps=gaps,
        clocks=clocks,
        kinds=packed_kinds(data, events) if kinds else None,
        contexts=None if context_rows is None else torch.from_numpy(context_rows),
    )


@torch.no_grad()
def user_scores(
    model: TwoTowers,
    items: Tensor,
    data: PreparedData,
    users: NDArray[np.int64],
    until: HistoryEnd,
    scores: CatalogScores = served_scores,
) -> Tensor:
    """The scores [U, N] of users with a history before `until` and item vectors `items` [N, D]."""
    return scores_by_vectors(
        user_vectors(model, items, data, users, until), items, model.config.scoring, scores
    ).cpu()


def scores_by_vectors(
    users: Tensor, items: Tensor, scoring: ScoringConfig, scores: CatalogScores = served_scores
) -> Tensor:
    """The scores [U, N] of user vectors [U, D], or the best of several interests [U, I, D]."""
    if users.dim() == 2:
        return scores(users, items, scoring)
    each = scores(users.transpose(0, 1).flatten(0, 1), items, scoring)  # the interests one after the other
    return best_scores(each.view(users.shape[1], len(users), -1))


def user_vectors(
    model: TwoTowers,
    items: Tensor,
    data: PreparedData,
    users: NDArray[np.int64],
    until: HistoryEnd,
) -> Tensor:
    """The vectors of users with a history before `until`, from item vectors `items` [N, D].

    They are [U, D], or [U, I, D] of several interests.
    """
    user, kinds = model.config.user, model.kinds is not None
    sets = model.reads_sets
    has_context = model.context is not None
    histories = histories_of(
        data, users, until, user.history_length, user.reads_times, kinds, sets, has_context
    )
    histories = histories.to(items.device)
    return model.user_vectors(histories, items[histories.rows])


ScoresOf = Callable[[NDArray[np.int64]], Tensor]
"""Maps a block of users [U] to scores [U, N] that the caller may change, and the next call may overwrite."""


class ReusedScores:
    """Like `tower.towers.model.served_scores`, but on the CPU, in memory that the next call overwrites.

    glibc before 2.38 does not reuse a freed block for an aligned block of the same size: with 400,000 items
    and 6,000 users, validation grew by 7 GB.
    """

    def __init__(self) -> None:
        self._memory = torch.empty(0)

    @torch.no_grad()
    def __call__(self, users: Tensor, items: Tensor, scoring: ScoringConfig) -> Tensor:
        """The scores [U, N] of user vectors [U, D] with the catalog [N, D]."""
        size = len(users) * len(items)
        if self._memory.numel() < size or self._memory.dtype != items.dtype:
            self._memory = torch.empty(size, dtype=items.dtype)
        scores = self._memory[:size].view(len(users), len(items))
        tempered = users / scoring.temperature
        if items.device.type == "cpu":
            torch.matmul(tempered, items.T, out=scores)
        else:
            scores.copy_(tempered @ items.T)
        return scores.abs_() if scoring.absolute else scores


def tower_scores(
    model: TwoTowers,
    data: PreparedData,
    until: HistoryEnd,
    popularity: NDArray[np.int64] | NDArray[np.float64],
    scores: CatalogScores | None = None,
) -> ScoresOf:
    """Score like the service: by the towers, and by `popularity` [N] for users without a history.

    `scores` are those of an objective that does not rank by inner products, which are the default.
    """
    of_catalog = scores or ReusedScores()
    model.eval()
    with torch.no_grad():
        items = model.catalog_vectors()
    popular = popularity_scores(popularity)

    def scores_of(users: NDArray[np.int64]) -> Tensor:
        starts, ends = history_bounds(data, users, until)
        warm = (ends > starts) | data.has_queries
        if warm.all():
            return user_scores(model, items, data, users, until, of_catalog)
        result = popular(users)
        if warm.any():
            result[torch.from_numpy(warm)] = user_scores(model, items, data, users[warm], until, of_catalog)
        return result

    return scores_of


def popularity_scores(popularity: NDArray[np.int64] | NDArray[np.float64]) -> ScoresOf:
    """Score items for all users by their counts of training events [N]: the popularity baseline."""
    scores = popularity_order(popularity)
    return lambda users: scores.repeat(len(users), 1)


def popularity_order(popularity: NDArray[np.int64] | NDArray[np.float64]) -> Tensor:
    """Scores [N]: minus the popularity rank, from 0, ties by ascending row. No two are equal."""
    ranks = np.empty(len(popularity), dtype=np.float32)
    ranks[np.argsort(-popularity, kind="stable")] = np.arange(len(popularity))
    return torch.from_numpy(-ranks)


def rank(
    scores_of: ScoresOf,
    data: PreparedData,
    users: NDArray[np.int64],
    until: HistoryEnd,
    k: int,
    exclude_seen: Seen,
    labelled: bool = False,
    slots: Sequence[Slot] = ("all",),
) -> Iterator[dict[Slot, NDArray[np.int64]]]:
    """The best k items of `users` [U] in blocks [b, k], -1 for none, without those that `exclude_seen` masks.

    Items are ranked among each of the `slots`: all, the user's used ones (`again`), the others (`new`).
    `labelled` leaves out all items except those of the user's events in the part `until` and their given
    negatives.
    """
    size = min(USERS_A_BLOCK, max(1, SCORES_A_BLOCK // len(data.item_ids)))
    for first in range(0, len(users), size):
        block = users[first : first + size]
        scores = scores_of(block)
        if exclude_seen is not False:
            mask(scores, left_out_pairs(data, block, until, exclude_seen))
        if labelled:
            indices, rows = map(torch.from_numpy, _labelled_pairs(data, block, until))
            candidates = torch.full_like(scores, float("-inf"))
            candidates[indices, rows] = scores[indices, rows]
            scores = candidates
        ranked: dict[Slot, NDArray[np.int64]] = {}
        if "all" in slots:
            ranked["all"] = top_rows(scores, k).numpy()
        if len(slots) > len(ranked):
            indices, rows = map(torch.from_numpy, used_pairs(data, block, until))
            if "again" in slots:
                used = torch.full_like(scores, float("-inf"))
                used[indices, rows] = scores[indices, rows]
                ranked["again"] = top_rows(used, k).numpy()
            scores[indices, rows] = float("-inf")
            ranked["new"] = top_rows(scores, k).numpy()
        yield ranked


def _labelled_pairs(
    data: PreparedData, users: NDArray[np.int64], part: HistoryEnd
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The events of `users` [U] in `part` and their negatives: the index in [U] and the item row, int64 [M].

    Raises:
        TrainingError: the data has no negatives.
    """
    if data.negatives is None or part == "end":
        raise TrainingError(
            f"evaluation.candidates = 'labelled' ranks the items that have a label, and {data.folder} has no "
            "labels; prepare the data with --label, or set candidates = 'catalog'."
        )
    owners, events, counts, negatives = _offered(data, part, users)
    return np.append(owners, np.repeat(owners, counts)), np.append(events, negatives)


def _offered(data: PreparedData, part: Part, users: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    """The E events of `users` [U] in `part` and the items offered beside them.

    Returns:
        The index in [U], the item and the number of negatives of each event, [E] each, and the items of all
        negatives, in the order of the events: four int64 arrays.
    """
    assert data.negatives is not None
    starts, ends = (np.asarray(bound[users]) for bound in data.bounds(part))
    events = ranges(starts, ends - starts)
    firsts = np.asarray(data.negatives.offsets[events])
    counts = np.asarray(data.negatives.offsets[events + 1]) - firsts
    owners = np.repeat(np.arange(len(users)), ends - starts)
    negatives = data.negatives.items[ranges(firsts, counts)].astype(np.int64)
    return owners, data.event_items[events].astype(np.int64), counts, negatives


def users_with_negatives(data: PreparedData, part: Part) -> NDArray[np.int64]:
    """The rows of users with a target in `part` that has a negative: int64, ascending."""
    if data.negatives is None:
        return np.empty(0, dtype=np.int64)
    starts, ends = data.bounds(part)
    return np.flatnonzero(data.negatives.offsets[ends] > data.negatives.offsets[starts])


def auc_of_users(scores_of: ScoresOf, data: PreparedData, part: Part, users: NDArray[np.int64]) -> Values:
    """The AUC of each of `users` [U], all from `users_with_negatives`: float64 [U].

    It is the share of pairs of an event in `part` and one of its negatives in which the event has the higher
    score; a tie counts a half. The AUC of all offered items would also pair events with others' negatives.

    Source: Zhu et al. 2017 (GAUC), with the same weight for each user.
    """
    values = [np.empty(0)]
    for first in range(0, len(users), USERS_A_BLOCK):
        block = users[first : first + USERS_A_BLOCK]
        owners, events, counts, negatives = _offered(data, part, block)
        owners, events = np.repeat(owners, counts), np.repeat(events, counts)
        scores = scores_of(block).numpy()
        higher, lower = scores[owners, events], scores[owners, negatives]
        points = (higher > lower) + 0.5 * (higher == lower)
        values.append(np.bincount(owners, points, len(block)) / np.bincount(owners, minlength=len(block)))
    return np.concatenate(values)
