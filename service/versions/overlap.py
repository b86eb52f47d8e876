"""The overlap of two versions' answers to the same recorded histories."""

from collections.abc import Sequence

from turret.data.errors import DataError
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import GoldenQuery
from turret.tower.errors import EncodingError
from turret.tower.retrieval.retriever import Retriever
from turret.tower.times import Times

K = 10


def overlap_of(first: Sequence[int | str], second: Sequence[int | str], k: int = K) -> float:
    """Return the share of the `k` best of `first` that is among the `k` best of `second`; 1 for no items."""
    expected = set(map(str, first[:k]))
    return len(expected & set(map(str, second[:k]))) / len(expected) if expected else 1.0


def mean_overlap(bundle: Bundle, recorded: Sequence[GoldenQuery]) -> float:
    """Answer another version's recorded queries, and return the mean overlap at 10 with its answers.

    Recorded times are used. A history without known items, or that `bundle` can't encode, has overlap 0.
    Features that it doesn't read are left out.
    """
    retriever = Retriever(bundle)
    names = {feature.name for feature in bundle.user_features}
    overlaps = []
    for query in recorded:
        features = {name: value for name, value in query.features.items() if name in names}
        try:
            rows, _ = bundle.vocabulary.known_rows(query.history)
            times = [_times(bundle, query)]
            ranking = retriever.recommend([rows], [features], K, [rows], times)[0] if len(rows) else None
        except (EncodingError, DataError):
            ranking = None
        answer = bundle.vocabulary.ids(ranking.rows) if ranking else []
        overlaps.append(overlap_of(query.items, answer))
    return sum(overlaps) / len(overlaps) if overlaps else 1.0


def _times(bundle: Bundle, query: GoldenQuery) -> Times | None:
    """The times of the items that `bundle` knows."""
    if query.times is None:
        return None
    is_known = [bundle.vocabulary.row(item) is not None for item in query.history]
    return Times(query.times.events[is_known], query.times.asked)
