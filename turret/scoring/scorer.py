"""Ranks blocks of users by the stages of the service, into tables of one row an item."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
import polars as pl

from turret.data.errors import DataError, shown
from turret.data.vocabulary import Id
from turret.service.errors import RequestError
from turret.service.overlay.fresh import FreshItems
from turret.service.ranking.item_view import ItemView
from turret.service.ranking.query import Query
from turret.service.ranking.resolving import encode, resolve
from turret.service.ranking.searching import rank
from turret.service.versions.holder import LoadedModel
from turret.tower.bundle.bundle import Bundle
from turret.tower.errors import EncodingError
from turret.tower.index.blocked import BlockedIndex
from turret.tower.index.faiss_calls import one_thread
from turret.tower.retrieval import NOTHING, Ranking, Retriever

SOURCES = ("towers", "popular", "fresh")
_POPULAR, _FRESH = SOURCES.index("popular"), SOURCES.index("fresh")


class Block(NamedTuple):
    """Some users with the query of each."""

    users: Sequence[Id]
    queries: Sequence[Query]


class Scorer:
    """Answers blocks of queries from a bundle and its overlay, by the stages of `ranking.batches.recommend`.

    The items of an exact index are found by products of blocks, which gives the same answers; those of an
    approximate index are found exactly too, so that answers have the items that the index misses. With
    `by_index` each user is searched for by the bundle's own index, as over HTTP.
    """

    def __init__(self, bundle: Bundle, fresh: FreshItems, by_index: bool = False) -> None:
        index = bundle.index if by_index else BlockedIndex(bundle.vectors)
        self.model = LoadedModel(bundle, Retriever(bundle, index), datetime.now(UTC))
        self.view = ItemView(bundle, fresh)
        ids = [*bundle.vocabulary.ids(range(len(bundle.vocabulary)))]
        ids += [fresh.id(row) for row in range(fresh.first_row, fresh.first_row + len(fresh.is_served))]
        self.items = id_column(ids, all(isinstance(item, int) for item in ids))

    def encode(self, block: Block) -> None:
        """Set the vector of each query. Raises DataError, which names the user, for an unreadable one."""
        try:
            for position, query in enumerate(block.queries):
                try:
                    resolve(query, self.view)
                except RequestError as error:
                    error.position = position
                    raise
            encode(block.queries, self.model, self.view)
        except (RequestError, EncodingError) as error:
            user = block.users[error.position or 0]
            raise DataError(f"user {shown(user)}: {error.field} = {shown(error.value)}: {error}") from None

    def ranked(self, block: Block) -> list[Ranking]:
        """The ranking of each query; raises as `encode`."""
        self.encode(block)
        with one_thread():  # other threads rank other blocks
            return rank(block.queries, self.model, self.view)

    def table(self, block: Block, is_whole: bool) -> pl.DataFrame:
        """The answers as rows of `user_id`, `rank` (from 1), `item_id`, `score` and `source`, best first.

        `is_whole`: ids of users are written as whole numbers, as all of the run print as such; else as texts.
        """
        rankings = self.ranked(block)
        counts = np.array([len(ranking.rows) for ranking in rankings], np.int64)
        owners, firsts = np.repeat(np.arange(len(counts)), counts), np.cumsum(counts) - counts
        rows = np.concatenate([NOTHING.rows, *(ranking.rows for ranking in rankings)])
        sources = np.repeat(
            np.array([_POPULAR * (ranking.plan.kind == "popularity") for ranking in rankings], np.uint32),
            counts,
        )
        sources[rows >= self.view.fresh.first_row] = _FRESH
        users = id_column(block.users, is_whole)
        return pl.DataFrame(
            {
                "user_id": users.gather(owners),
                "rank": (np.arange(len(rows)) - firsts[owners] + 1).astype(np.int32),
                "item_id": self.items.gather(rows),
                "score": np.concatenate([NOTHING.scores, *(ranking.scores for ranking in rankings)]),
                "source": pl.Series(SOURCES).gather(sources),
            }
        )


def id_column(ids: Sequence[Id], is_whole: bool) -> pl.Series:
    """A column of ids, as whole numbers or as texts."""
    kind: type[int | str] = int if is_whole else str
    return pl.Series([kind(each) for each in ids], dtype=pl.Int64 if is_whole else pl.String)
