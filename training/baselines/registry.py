"""The baselines by name, and the choice of `--baselines`.

This module has the baselines by counts, of all events and of the newest ones, and BM25, the baseline of
queries.
"""

import re
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.data.kinds import Seen
from turret.data.prepared import HistoryEnd, PreparedData
from turret.training.baselines.interactions import Baseline
from turret.training.baselines.own_items import OWN_ITEMS
from turret.training.baselines.pair_models import PAIR_MODELS
from turret.training.baselines.popular_before import POPULAR_BEFORE
from turret.training.errors import TrainingError
from turret.training.evaluation.ranking import ScoresOf, popularity_order, popularity_scores
from turret.training.used_items import leaves_out_all

RECENT_SHARE = 0.1
# So many events estimate the time from which on an event is recent.
_SAMPLE = 2**20
K1, B = 1.2, 0.75
# These scripts have no blanks between words: Chinese and Japanese characters, and Thai.
_UNSPACED = r"\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_TERMS = re.compile(rf"[{_UNSPACED}]+|[^\W{_UNSPACED}]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")


def newest_part(data: PreparedData, share: float) -> tuple[NDArray[np.bool_], float, float]:
    """Whether events are in the newest `share` of the training part, bool [E], its first time and its last.

    The share is measured on a million evenly spaced events.
    """
    starts, ends = (np.asarray(bound) for bound in data.bounds("train"))
    lengths = np.column_stack([ends - starts, data.offsets[1:] - ends]).ravel()
    is_training = np.repeat(np.tile([True, False], len(starts)), lengths)
    every = slice(None, None, 1 + len(is_training) // _SAMPLE)
    times = data.times[every][is_training[every]]
    if not len(times):
        return is_training, 0.0, 0.0
    since = np.quantile(times, 1 - share, method="lower")
    return is_training & (data.times >= since), float(since), float(times.max())


def fit_recent(data: PreparedData, until: HistoryEnd) -> ScoresOf:
    """Rank items by their number of targets in the newest tenth of the training part, then in all of it."""
    newest = data.only_targets(np.flatnonzero(newest_part(data, RECENT_SHARE)[0]))
    recent = np.bincount(data.event_items[newest], minlength=len(data.item_ids))
    # One number holds both counts: no item has more than 2^31 events.
    return popularity_scores((recent << 31) + data.item_counts("train"))


def terms(text: str) -> list[str]:
    """The words of a text in lower case; pairs of characters where a script has no blanks between words."""
    words: list[str] = []
    for run in _TERMS.findall(text.casefold()):
        if _IS_UNSPACED.match(run) and len(run) > 1:
            words += [run[start : start + 2] for start in range(len(run) - 1)]
        else:
            words.append(run)
    return words


def _texts(data: PreparedData) -> list[str]:
    """The names of the text features of items that are fields, too."""
    return [
        feature.name
        for feature in data.item_features.features
        if feature.kind == "text" and feature.name in data.fields
    ]


def fit_bm25(data: PreparedData, until: HistoryEnd) -> ScoresOf:
    """Rank items by BM25 (k1 = 1.2, b = 0.75, library bm25s); items that share no term follow by popularity.

    Source: Robertson & Zaragoza 2009; Lu 2024, "BM25S".
    """
    import bm25s

    index = bm25s.BM25(k1=K1, b=B)
    rows = zip(*(data.fields[name] for name in _texts(data)), strict=True)
    texts = [" ".join(str(value) for value in row if value is not None) for row in rows]
    # A text without terms gets a term that no query has.
    index.index([terms(text) or ["\0"] for text in texts], show_progress=False)

    behind = popularity_order(data.item_counts("train"))

    def scores_of(users: NDArray[np.int64]) -> Tensor:
        queries = [terms(data.query_text(user)) for user in users.tolist()]
        scores = [index.get_scores(query) if query else np.zeros(len(data.item_ids)) for query in queries]
        result = torch.from_numpy(np.array(scores, dtype=np.float32))
        return torch.where(result == 0, behind, result)

    return scores_of


ALL = "all"
POPULARITY = Baseline(
    "popularity", "popularity", lambda data, until: popularity_scores(data.item_counts("train"))
)
BASELINES = {
    baseline.name: baseline
    for baseline in (
        POPULARITY,
        Baseline(
            "recent_popularity",
            "recent popularity",
            fit_recent,
            lambda data: None if data.manifest.time.kind == "timestamp" else "its events have no timestamps",
        ),
        *POPULAR_BEFORE,
        *OWN_ITEMS,
        *PAIR_MODELS,
        Baseline(
            "bm25",
            "BM25",
            fit_bm25,
            lambda data: None if _texts(data) else "its items have no text among the fields of answers",
            of_queries=True,
        ),
    )
}

_MASKED = "the run leaves out all used items (evaluation.exclude_seen), which are those that it ranks"


def chosen_baselines(
    names: Sequence[str], data: PreparedData, exclude_seen: Seen
) -> tuple[list[Baseline], dict[str, str]]:
    """The named baselines in the order of the registry.

    Popularity is always there, and so are the baselines of used items unless `exclude_seen` masks all used
    items. Queries, which have no histories, have BM25 and popularity alone.

    Returns:
        The baselines, and the reasons why others of "all" can't be fitted here, by name.

    Raises:
        TrainingError: there is no such baseline, or a named one can't be fitted here.
    """
    for name in names:
        if name != ALL and name not in BASELINES:
            raise TrainingError(
                f"--baselines {name}: there is no such baseline; there are {', '.join(BASELINES)}, and all."
            )
    chosen, left_out, masks_all = [], {}, leaves_out_all(data, exclude_seen)
    for name, baseline in BASELINES.items():
        kind = _other_kind(baseline, data)
        is_masked = baseline.of_own_use and masks_all
        is_usual = baseline is POPULARITY or baseline.of_own_use or baseline.of_queries
        is_usual |= baseline.of_baskets
        if name not in names and (kind or is_masked or not (ALL in names or is_usual)):
            continue
        obstacle = kind or (_MASKED if is_masked else baseline.obstacle(data))
        if obstacle is None:
            chosen.append(baseline)
        elif name in names:
            raise TrainingError(f"--baselines {name}: {obstacle}.")
        elif ALL in names:
            left_out[name] = obstacle
    return chosen, left_out


def _other_kind(baseline: Baseline, data: PreparedData) -> str | None:
    """The reason why a baseline of other data than this can't be fitted on it; None for one of such data."""
    if baseline is not POPULARITY and baseline.of_queries != data.has_queries:
        without = ("queries", "texts", "histories") if data.has_queries else ("users", "histories", "texts")
        return "{} have {} and no {}".format(*without)
    if baseline.of_baskets and not data.holds_baskets:
        return "users have histories, and it compares the items of baskets (training.examples = 'sessions')"
    return None
