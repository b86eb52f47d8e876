"""The repeat term of a run: it is fitted after its towers are trained, and added to their scores."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.data.kinds import Seen, read_kinds, target_codes
from turret.data.prepared import HistoryEnd, PreparedData
from turret.data.progress import progress
from turret.data.ranges import lower_medians, ranges
from turret.tower.repeats import (
    EVENTS,
    NUMBERS,
    ItemUse,
    RepeatTerm,
    RepeatWeights,
    class_sizes,
    used_items,
)
from turret.training.batches.event_times import seconds
from turret.training.config.experiment import EvaluationConfig
from turret.training.evaluation.evaluation import Relevant, Sets, values_of
from turret.training.evaluation.metrics import Values
from turret.training.evaluation.ranking import SCORES_A_BLOCK, USERS_A_BLOCK, ScoresOf
from turret.training.evaluation.seen import history_bounds, left_out_pairs, mask, uses_of
from turret.training.randomness import stream

# A fit reads at most so many events. PENALTY weighs half the weights' sum of squares against the sum of the
# users' losses.
MOST_EVENTS, PENALTY = 4_000_000, 3.0
# An item has a usual gap from so many gaps on.
LEAST_GAPS = 3
_NOTHING = -1e30  # stands for minus infinity, the logarithm of a sum without a term
# Towers trained on next items are too sure of later ones: factors of their scores to try, in falling order.
SHARPNESS = (1.4, 1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.125)


def last_trained(data: PreparedData) -> PreparedData:
    """The data with each user's last training target as its validation part, if an event is before it."""
    starts, ends = (np.asarray(bound) for bound in data.bounds("train"))
    targets = np.append(-1, np.flatnonzero(data.are_targets(slice(None))))
    last = targets[np.searchsorted(targets, ends) - 1]
    return replace(data, splits=np.column_stack([np.where(last > starts, last, ends), ends]))


def item_use(data: PreparedData) -> ItemUse:
    """The counts of targets and the usual gaps of the items in the training part."""
    return ItemUse(data.item_counts("train"), usual_gaps(data))


def usual_gaps(data: PreparedData) -> NDArray[np.float32]:
    """The median seconds between two successive targets of one user and item, in training: float32 [N].

    It is 0 for an item with fewer than `LEAST_GAPS` gaps, and for all items in data without timestamps.
    """
    gaps = np.zeros(len(data.item_ids), dtype=np.float32)
    if data.manifest.time.kind != "timestamp":
        return gaps
    starts, ends = (np.asarray(bound) for bound in data.bounds("train"))
    spans: list[NDArray[np.float64]] = []
    taken: list[NDArray[np.int64]] = []
    for first in range(0, len(starts), USERS_A_BLOCK):
        block = slice(first, first + USERS_A_BLOCK)
        positions = data.only_targets(ranges(starts[block], ends[block] - starts[block]))
        rows, owners = data.event_items[positions].astype(np.int64), np.searchsorted(ends, positions, "right")
        order = np.lexsort((rows, owners))  # stable: in the order of times
        keys, times = owners[order] * len(gaps) + rows[order], seconds(data, positions[order])
        are_again = (np.diff(keys) == 0) & (np.diff(times) > 0)
        spans.append(np.diff(times)[are_again])
        taken.append(rows[order][1:][are_again])
    between, rows = np.concatenate(spans), np.concatenate(taken)
    medians, counts = lower_medians(between, rows, len(gaps))
    return np.where(counts >= LEAST_GAPS, medians, 0.0).astype(np.float32)


def with_repeats(scores_of: ScoresOf, term: RepeatTerm, data: PreparedData, until: HistoryEnd) -> ScoresOf:
    """The scores plus the gain of each item of the user's history."""
    items = item_use(data)

    def scores_with_gains(users: NDArray[np.int64]) -> Tensor:
        scores, events = scores_of(users), uses_of(data, users, until, EVENTS)
        used, weights = term.used(events, items), term.weights(events)
        places = torch.from_numpy(used.owners), torch.from_numpy(used.rows)
        plain = scores[places]
        scores[places] = plain + (torch.from_numpy(weights.values(used)) + weights.slope * plain)
        return scores

    return scores_with_gains


_Choices = dict[str, NDArray[Any]]
"""The choices of U users among the M items of their histories and the other items, as arrays by name.

- the numbers and classes of the items, float64 and int64 [M] each, by their names
- owners: int64 [M], their users; scores: float64 [M], their scores by the towers
- chosen: float64 [M], the share of the user's targets that the item makes up
- others: float64 [U, S], by `SHARPNESS` s, the logarithm of the sum of exp(s score) over the other items
- foreign: float64 [U], the sum of the scores of targets among the other items, weighted as in `chosen`
- ranked: float64 [U], the share of the user's targets that are not left out
"""


class Fit(NamedTuple):
    """The terms fitted on all users and on each half of them; `second` has the second half's users, int64."""

    term: RepeatTerm
    of_first: RepeatTerm
    of_second: RepeatTerm
    second: NDArray[np.int64]


def fit_repeats(scores_of: ScoresOf, data: PreparedData, seen: Seen, relevant: Relevant) -> Fit | None:
    """The terms with the largest likelihood of the targets `relevant` of the validation part.

    The likelihood of a target is its softmax over the whole catalog, by scores with gains times a common
    factor that keeps their order. Every user has the same weight, whatever the number of targets; items that
    `seen` leaves out do not count. The logarithm of the likelihood is concave in the weights. None if fewer
    than two users have a history.
    """
    starts, ends = history_bounds(data, relevant.users, "validation")
    lengths = np.minimum(ends - starts, EVENTS)
    known = stream(0, "repeat term", 0).permutation(np.flatnonzero(lengths))
    known = known[np.cumsum(lengths[known]) <= MOST_EVENTS]
    if len(known) < 2:
        return None
    halves = [relevant.take(np.sort(half)) for half in np.array_split(known, 2)]
    with progress("fitting the repeat term", len(known)) as advance:
        first, second = (_choices(scores_of, data, seen, half, advance) for half in halves)
    with progress("fitting the weights of the repeat term"):
        whole, of_first, of_second = (
            _term(_joined(blocks), data) for blocks in (first + second, first, second)
        )
    return Fit(whole, of_first, of_second, halves[1].users)


def values_across(
    scores_of: ScoresOf, fit: Fit, data: PreparedData, sets: Sets, metric: str, config: EvaluationConfig
) -> dict[str, Values]:
    """Like `values_of`, but each user is ranked by the term of the half that the user is not in.

    A term ranks well for the users that it was fitted on, even if they repeat by chance.
    """
    users, values = sets[0][1].users, dict[str, Values]()
    is_second = np.isin(users, fit.second)
    for term, are_others in ((fit.of_first, is_second), (fit.of_second, ~is_second)):
        if are_others.any():
            others = [(slot, relevant.take(np.flatnonzero(are_others))) for slot, relevant in sets]
            ranker = with_repeats(scores_of, term, data, "validation")
            for name, of_others in values_of(ranker, data, others, metric, config).items():
                values.setdefault(name, np.full(len(users), np.nan))[are_others] = of_others
    return values


def _term(choices: _Choices, data: PreparedData) -> RepeatTerm:
    kinds, is_timed = len(read_kinds(data.manifest.kinds)), data.manifest.time.kind == "timestamp"
    return RepeatTerm(
        untimed=_fitted(choices, class_sizes(False, kinds)),
        timed=_fitted(choices, class_sizes(True, kinds)) if is_timed else None,
        kinds=kinds,
        targets=tuple(target_codes(data.manifest.kinds)),
    )


def _choices(
    scores_of: ScoresOf, data: PreparedData, seen: Seen, relevant: Relevant, advance: Callable[[int], None]
) -> list[_Choices]:
    """The choices of the users of `relevant`, in blocks of them."""
    items, count = item_use(data), len(data.item_ids)
    kinds, taking = len(read_kinds(data.manifest.kinds)), target_codes(data.manifest.kinds)
    size = min(USERS_A_BLOCK, max(1, SCORES_A_BLOCK // count))
    blocks: list[_Choices] = []
    for first in range(0, len(relevant.users), size):
        some = relevant.take(np.arange(first, min(first + size, len(relevant.users))))
        scores, counts = scores_of(some.users), some.counts
        mask(scores, left_out_pairs(data, some.users, "validation", seen))
        used = used_items(uses_of(data, some.users, "validation", EVENTS), items, kinds, taking)
        places = torch.from_numpy(used.owners), torch.from_numpy(used.rows)
        used_scores = scores[places].numpy().astype(np.float64)
        owners = np.repeat(np.arange(len(counts)), counts)
        targets = scores[torch.from_numpy(owners), torch.from_numpy(some.rows)].numpy()
        is_ranked, share = targets > -np.inf, 1.0 / counts
        is_foreign = is_ranked & ~np.isin(owners * count + some.rows, used.owners * count + used.rows)
        is_chosen = np.isin(used.owners * count + used.rows, owners * count + some.rows)
        scores[places] = float("-inf")
        others = torch.stack([(scores * factor).logsumexp(dim=1) for factor in SHARPNESS])
        keep = used_scores > -np.inf
        of_items = {
            **used.numbers,
            **used.classes,
            "owners": used.owners,
            "scores": used_scores,
            "chosen": is_chosen * share[used.owners],
        }
        of_users = {
            "others": np.maximum(others.numpy().T.astype(np.float64), _NOTHING),
            "foreign": share * np.bincount(owners, np.where(is_foreign, targets, 0.0), len(counts)),
            "ranked": share * np.bincount(owners, is_ranked, len(counts)),
        }
        blocks.append({name: values[keep] for name, values in of_items.items()} | of_users)
        advance(len(counts))
    return blocks


def _joined(blocks: Sequence[_Choices]) -> _Choices:
    firsts = np.cumsum([0, *(len(block["ranked"]) for block in blocks)])
    shifted = [
        {**block, "owners": block["owners"] + first} for block, first in zip(blocks, firsts, strict=False)
    ]
    return {name: np.concatenate([block[name] for block in shifted]) for name in shifted[0]}


def _fitted(choices: _Choices, sizes: dict[str, int]) -> RepeatWeights:
    """The fitted weights, with classes of these sizes, at the best sharpness.

    The least loss is convex in the sharpness too, so the search ends at the first sharpness that is worse.
    """
    from scipy.sparse import csr_matrix, hstack

    count = len(choices["scores"])
    lines = np.arange(count + 1)
    tables = [csr_matrix((np.ones(count), choices[name], lines), (count, sizes[name])) for name in sizes]
    numbers = np.column_stack([choices[name] for name in ("scores", *NUMBERS)])
    matrix = hstack([csr_matrix(numbers), *tables], format="csr")
    best, loss = np.zeros(matrix.shape[1]), np.inf
    weights = best
    for number, sharpness in enumerate(SHARPNESS):
        scaled, value = _minimum(choices, matrix, number, weights * sharpness)
        weights = scaled / sharpness
        if value > loss:
            break
        best, loss = weights, value
    best = np.round(best, 6)
    parts = np.split(best[numbers.shape[1] :], np.cumsum(list(sizes.values()))[:-1])
    return RepeatWeights(
        slope=best[0],
        numbers=dict(zip(NUMBERS, best[1:].tolist(), strict=False)),
        classes={name: tuple(part.tolist()) for name, part in zip(sizes, parts, strict=True)},
    )


def _minimum(
    choices: _Choices, matrix: Any, number: int, start: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """The weights of the features [M, F] with the least loss at one sharpness, and that loss per user."""
    from scipy.optimize import minimize

    others, owners, users = choices["others"][:, number], choices["owners"], len(choices["others"])
    chosen, ranked = choices["chosen"], choices["ranked"]
    scores, transposed = SHARPNESS[number] * choices["scores"], matrix.T.tocsr()

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        gained = scores + matrix @ weights
        highest = others.copy()
        np.maximum.at(highest, owners, gained)
        raised = np.exp(gained - highest[owners])
        total = np.exp(others - highest) + np.bincount(owners, raised, users)
        likelihood = chosen @ gained - ranked @ (np.log(total) + highest)
        shares = ranked[owners] * raised / total[owners]
        gradient = transposed @ (shares - chosen) + PENALTY * weights
        return (PENALTY / 2 * weights @ weights - likelihood) / users, gradient / users

    result = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 500})
    return result.x, float(result.fun) - SHARPNESS[number] * float(choices["foreign"].mean())
