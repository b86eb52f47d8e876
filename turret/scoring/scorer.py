"""Ranks blocks of users by the stages of the service, into tables of one row an item."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from turret.data.errors import ConfigurationError, DataError, shown
from turret.data.vocabulary import Id
from turret.scoring.shared_search import Answers, Encoded, Pairs, SharedSearch, are_shared
from turret.service.errors import RequestError
from turret.service.overlay.fresh import FreshItems
from turret.service.ranking.item_view import ItemView
from turret.service.ranking.query import Query
from turret.service.ranking.resolving import encode, resolve
from turret.service.ranking.searching import rank
from turret.service.versions.holder import LoadedModel
from turret.service.versions.record import Rule
from turret.tower.bundle.bundle import Bundle
from turret.tower.counted_kinds import CountedKinds
from turret.tower.errors import EncodingError
from turret.tower.index.blocked import BlockedIndex
from turret.tower.index.faiss_calls import one_thread
from turret.tower.retrieval import Retriever

SOURCES = ("towers", "popular", "fresh")
_POPULAR, _FRESH = SOURCES.index("popular"), SOURCES.index("fresh")


class Block(Protocol):
    """Some users with their histories."""

    @property
    def users(self) -> Sequence[Id]:
        """The ids of the users."""

    def had(self, view: ItemView) -> Pairs:
        """The items of all events of each user that the version has."""

    def encoded(self, scorer: "Scorer") -> Encoded:
        """The vectors of the users, and the items that their answers leave out; raises RequestError."""


class QueryBlock(NamedTuple):
    """Some users with the query of each."""

    users: Sequence[Id]
    queries: Sequence[Query]

    def had(self, view: ItemView) -> Pairs:
        """The items of all events of each user that the version has."""
        return _pairs([view.fresh.known_rows(query.history)[0] for query in self.queries])

    def encoded(self, scorer: "Scorer") -> Encoded:
        """Resolve and encode the queries by the stages of the service."""
        resolve(self.queries, scorer.view)
        encode(self.queries, scorer.model, scorer.view)
        places = [place for place, query in enumerate(self.queries) if query.vector is not None]
        vectors = np.zeros((len(places), *scorer.model.bundle.encoder.shape), np.float32)
        for number, place in enumerate(places):
            vectors[number] = self.queries[place].vector
        out = _pairs([query.excluded for query in self.queries])
        return Encoded(np.array(places, dtype=np.int64), vectors, out)


class Scorer:
    """Answers blocks of users from a bundle and its overlay, as `ranking.batches.recommend` does.

    Users whose conditions are those of `query` but for their history are answered by one product (`shared`);
    for others each query is ranked by the service. The items of an exact index are found by products of
    blocks, which gives the same answers; those of an approximate index are found exactly too, so that answers
    have the items that the index misses. With `by_index` each user is searched for by the bundle's own index,
    as over HTTP.
    """

    def __init__(
        self,
        bundle: Bundle,
        fresh: FreshItems,
        query: Query | None = None,
        rules: Mapping[str, Rule] | None = None,
        by_index: bool = False,
    ) -> None:
        index = bundle.index if by_index else BlockedIndex(bundle.vectors)
        self.model = LoadedModel(bundle, Retriever(bundle, index), datetime.now(UTC))
        self.view = ItemView(bundle, fresh)
        ids = [*bundle.vocabulary.ids(range(len(bundle.vocabulary)))]
        ids += [fresh.id(row) for row in range(fresh.first_row, fresh.first_row + len(fresh.is_served))]
        self.items = id_column(ids, all(isinstance(item, int) for item in ids))
        self.user_features = [feature.name for feature in bundle.user_features]
        self.counted = CountedKinds(bundle.manifest, None if query is None else query.request.exclude_seen)
        self.shared: SharedSearch | None = None
        if query is not None and not by_index and are_shared(query, rules or {}, self.view):
            self.shared = SharedSearch(query, self.view, self.model.retriever)

    def encode(self, block: Block) -> Encoded:
        """Encode the users. Raises DataError, which names the user, for an unreadable one."""
        try:
            return block.encoded(self)
        except (RequestError, EncodingError) as error:
            user = block.users[error.position or 0]
            raise DataError(f"user {shown(user)}: {error.field} = {shown(error.value)}: {error}") from None

    def answers(self, block: Block) -> Answers:
        """The answer of each user; raises as `encode`."""
        encoded = self.encode(block)
        if self.shared is not None:
            return self.shared.answers(len(block.users), encoded)
        assert isinstance(block, QueryBlock)
        with one_thread():  # other threads rank other blocks
            return Answers.of(rank(block.queries, self.model, self.view))

    def table(self, block: Block, is_whole: bool) -> pl.DataFrame:
        """The answers as rows of `user_id`, `rank` (from 1), `item_id`, `score` and `source`, best first.

        `is_whole`: ids of users are written as whole numbers, in which form all ids of the run print; else as
        texts.
        """
        answers = self.answers(block)
        owners, ranks = np.nonzero(answers.rows >= 0)
        rows = answers.rows[owners, ranks]
        sources = np.where(answers.are_popular, np.uint32(_POPULAR), np.uint32(0))[owners]
        sources[rows >= self.view.fresh.first_row] = _FRESH
        return pl.DataFrame(
            {
                "user_id": id_column(block.users, is_whole).gather(owners),
                "rank": (ranks + 1).astype(np.int32),
                "item_id": self.items.gather(rows),
                "score": answers.scores[owners, ranks],
                "source": pl.Series(SOURCES).gather(sources),
            }
        )


def check_one_vector(bundle: Bundle, remedy: str) -> None:
    """Raise ConfigurationError with a `remedy` where users have several interests."""
    if (count := bundle.manifest.interests) > 1:
        version = bundle.manifest.version
        raise ConfigurationError(f"version {version} has {count} vectors a user, by interests; {remedy}")


def _pairs(rows: Sequence[NDArray[Any]]) -> Pairs:
    """The rows of each user of a block, as pairs."""
    owners = np.repeat(np.arange(len(rows)), list(map(len, rows)))
    return Pairs(owners, np.concatenate([np.empty(0, np.int64), *rows]))


def id_column(ids: Sequence[Id], is_whole: bool) -> pl.Series:
    """A column of ids, as whole numbers or as texts."""
    kind: type[int | str] = int if is_whole else str
    return pl.Series([kind(each) for each in ids], dtype=pl.Int64 if is_whole else pl.String)
