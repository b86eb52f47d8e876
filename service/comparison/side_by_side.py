"""Both versions' answers to one request, and the moves of the items between them."""

from collections.abc import Sequence
from typing import Any

from turret.service.comparison.side import Id, Side, overlap_between
from turret.service.ranking.query import Query


def side_by_side(live: Side, other: Side, query: Query) -> dict[str, Any]:
    """Answer a query from both versions; see `ComparedAnswer`. Raises as `Side.answer`."""
    live_answer, live_ids = live.answer(query, other.feature_names)
    other_answer, other_ids = other.answer(query, live.feature_names)
    return {
        "live": live_answer,
        "other": other_answer,
        "overlap": overlap_between(live_ids, other_ids),
        "moves": moves(live_ids, other_ids),
    }


def moves(live: Sequence[Id], other: Sequence[Id]) -> list[dict[str, Any]]:
    """The rank of each item in both answers, from 1, or None; those of the live version come first.

    Ids are compared as texts: 7 and "7" are one item.
    """
    live_ranks = {str(item): rank for rank, item in enumerate(live, start=1)}
    other_ranks = {str(item): rank for rank, item in enumerate(other, start=1)}
    items = {str(item): item for item in (*other, *live)}
    return [
        {"id": items[text], "live_rank": live_ranks.get(text), "other_rank": other_ranks.get(text)}
        for text in (live_ranks | other_ranks)
    ]
