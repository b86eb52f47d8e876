"""The two versions of a comparison, and both answers to one query."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from turret.service.errors import RequestError
from turret.service.observing.answer_record import AnswerRecord
from turret.service.overlay.fresh import FreshItems
from turret.service.ranking.answers import Answer, recommend
from turret.service.ranking.query import Query
from turret.service.versions.gate import overlap_of
from turret.service.versions.loaded_model import LoadedModel
from turret.tower.errors import EncodingError

Id = int | str


@dataclass(frozen=True)
class Side:
    """A model with its overlay; `missing` lists the parts that its answers have to do without."""

    model: LoadedModel
    fresh: FreshItems
    missing: Sequence[str] = ()

    @property
    def feature_names(self) -> frozenset[str]:
        """The names of the user features that the version reads."""
        return frozenset(feature.name for feature in self.model.bundle.user_features)

    def answer(self, query: Query, other: "Side") -> tuple[Answer, list[Id]]:
        """Answer a query; return the ids of the items too, best first.

        Features that only the `other` side reads are left out. Raises RequestError or EncodingError, whose
        message names the version.
        """
        records: list[AnswerRecord] = []
        try:
            (answer,) = recommend(self.model, self.fresh, [self._readable(query, other)], None, records)
        except (RequestError, EncodingError) as error:
            error.args = (f"version {self.model.version}: {error}",)
            raise
        answer["degraded"] += self.missing
        answer.pop("cursor", None)  # a comparison has one page
        return answer, [self.fresh.id(row) for row in records[0].rows.tolist()]

    def _readable(self, query: Query, other: "Side") -> Query:
        left_out = other.feature_names - self.feature_names
        if left_out.isdisjoint(query.request.features):
            return query
        features = {name: value for name, value in query.request.features.items() if name not in left_out}
        return replace(query, request=query.request.model_copy(update={"features": features}))


def side_by_side(live: Side, other: Side, query: Query) -> dict[str, Any]:
    """Answer a query from both versions; see `ComparedAnswer`. Raises as `Side.answer`."""
    live_answer, live_ids = live.answer(query, other)
    other_answer, other_ids = other.answer(query, live)
    return {
        "live": live_answer,
        "other": other_answer,
        "overlap": overlap_between(live_ids, other_ids),
        "moves": moves(live_ids, other_ids),
    }


def overlap_between(live: Sequence[Id], other: Sequence[Id]) -> float:
    """Return the share of the longer answer that is in the other one; 1 for two empty answers."""
    longer, shorter = sorted((live, other), key=len, reverse=True)
    return overlap_of(longer, shorter, len(longer))


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
