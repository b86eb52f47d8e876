"""One of the two versions of a comparison: the model with its overlay, and its answers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from turret.service.errors import RequestError
from turret.service.overlay.fresh import FreshItems
from turret.service.ranking.answer_record import AnswerRecord
from turret.service.ranking.answers import Answer, recommend
from turret.service.ranking.query import Query
from turret.service.versions.loaded_model import LoadedModel
from turret.service.versions.overlap import overlap_of
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

    def answer(self, query: Query, others: frozenset[str]) -> tuple[Answer, list[Id]]:
        """Answer a query, and return the ids of the items too, best first.

        Features that only the other version reads, whose names are `others`, are left out. Raises
        RequestError or EncodingError, whose message names the version.
        """
        records: list[AnswerRecord] = []
        try:
            (answer,) = recommend(self.model, self.fresh, [self._readable(query, others)], None, records)
        except (RequestError, EncodingError) as error:
            error.args = (f"version {self.model.version}: {error}",)
            raise
        answer["degraded"] += self.missing
        answer.pop("cursor", None)  # a comparison has one page
        return answer, [self.fresh.id(row) for row in records[0].rows.tolist()]

    def _readable(self, query: Query, others: frozenset[str]) -> Query:
        left_out = others - self.feature_names
        if left_out.isdisjoint(query.request.features):
            return query
        features = {name: value for name, value in query.request.features.items() if name not in left_out}
        return replace(query, request=query.request.model_copy(update={"features": features}))


def overlap_between(live: Sequence[Id], other: Sequence[Id]) -> float:
    """Return the share of the longer answer that is in the other one; 1 for two empty answers."""
    longer, shorter = sorted((live, other), key=len, reverse=True)
    return overlap_of(longer, shorter, len(longer))
