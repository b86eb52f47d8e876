"""For each item, the users with the highest scores who have not had it: the list for a mailing about it."""

from collections.abc import Sequence
from pathlib import Path
from time import monotonic

import numpy as np
import polars as pl
from numpy.typing import NDArray

from turret.data.errors import ConfigurationError, DataError, shown
from turret.data.files import new_file, scratch_folder
from turret.data.progress import progress
from turret.scoring.parts import check_target, polars_errors_told
from turret.scoring.run import PART, Run, opened_source
from turret.scoring.scorer import Block, Scorer, check_one_vector, id_column
from turret.scoring.users import ids_of_file, refuse_repeated
from turret.service.stores.contract import now_ms
from turret.tower.index.faiss_calls import faiss

# A pair of an item and a user takes 20 bytes: together less than half a gigabyte.
MOST_PAIRS = 20_000_000
_ITEMS = 1_024  # a product with a block of users has so many
Vectors = NDArray[np.float32]


class BestUsers:
    """The best k users of each of M items so far; earlier users come first among equals.

    Candidates are chosen by a matrix product, with a margin for its rounding; their scores are the inner
    products that the service computes.
    """

    def __init__(self, vectors: Vectors, k: int, absolute: bool) -> None:
        self._vectors, self._absolute = np.ascontiguousarray(vectors, dtype=np.float32), absolute
        self.products = np.full((len(vectors), k), -np.inf, dtype=np.float32)
        self.users = np.full((len(vectors), k), None, dtype=object)
        # This bounds the rounding of two sums of D products, as in `tower.index.blocked`.
        self._error = 2 * vectors.shape[1] * 2.0**-23 * np.linalg.norm(self._vectors, axis=1)

    def add(self, users: NDArray[np.object_], vectors: Vectors, had: NDArray[np.int64]) -> None:
        """Add users [B] with vectors [B, D]; `had` [P, 2] are the items, ascending, with their users."""
        longest = float(np.linalg.norm(vectors, axis=1).max())
        for first in range(0, len(self._vectors), _ITEMS):
            chosen = slice(first, first + _ITEMS)
            scores = self._vectors[chosen] @ vectors.T
            scores = np.abs(scores) if self._absolute else scores
            start, end = np.searchsorted(had[:, 0], (first, first + len(scores)))
            scores[had[start:end, 0] - first, had[start:end, 1]] = -np.inf
            self._merge(chosen, scores, users, vectors, longest)

    def _merge(
        self, chosen: slice, scores: Vectors, users: NDArray[np.object_], vectors: Vectors, longest: float
    ) -> None:
        k, error = self.products.shape[1], self._error[chosen] * longest
        least = self.products[chosen, -1].astype(np.float64)
        if scores.shape[1] > k:  # no more than k of this block can be among the best
            least = np.maximum(least, np.partition(scores, -k, axis=1)[:, -k])
        may = (scores >= (least - error)[:, np.newaxis]) & (scores > -np.inf)
        counts = may.sum(axis=1)
        width = int(counts.max())
        if not width:
            return
        # FAISS takes addresses, which stay valid as long as these arrays have names.
        rows = np.ascontiguousarray(np.argsort(~may, axis=1, kind="stable")[:, :width], dtype=np.int64)
        exact = np.empty(rows.shape, np.float32)
        faiss.fvec_inner_products_by_idx(
            faiss.swig_ptr(exact),
            faiss.swig_ptr(self._vectors[chosen]),
            faiss.swig_ptr(vectors),
            faiss.swig_ptr(rows),
            vectors.shape[1],
            len(rows),
            width,
        )
        exact = np.abs(exact) if self._absolute else exact
        exact[np.arange(width) >= counts[:, np.newaxis]] = -np.inf
        products = np.concatenate([self.products[chosen], exact], axis=1)
        order = np.argsort(-products, axis=1, kind="stable")[:, :k]
        named = np.concatenate([self.users[chosen], users[rows]], axis=1)
        self.products[chosen] = np.take_along_axis(products, order, axis=1)
        self.users[chosen] = np.take_along_axis(named, order, axis=1)


def score_items(run: Run, k: int, items: Path | None = None) -> str:
    """Write the `k` best users of each item, or of each of a file, into a Parquet file; return a sentence.

    Columns: `item_id`, `rank`, `user_id`, `score`. Users who have had an item, by any event, are left out,
    and so are users without a known item. Memory does not grow with the users; a killed run begins anew.
    Raises ConfigurationError for a k that is out of bounds, and as `run.write_tables`.
    """
    check_target(run.target)
    check_one_vector(run.bundle, "users are ranked by one: use a version of tower.user.interests = 1")
    begun, count = monotonic(), 0
    with opened_source(run) as opened, scratch_folder() as folder:
        scorer = opened.scorer()
        rows = _rows(scorer, items)
        if k < 1 or k * len(rows) > MOST_PAIRS:
            most = max(MOST_PAIRS // max(len(rows), 1), 1)
            raise ConfigurationError(
                f"k = {k} users of {len(rows):,} items; give 1 to {most:,}, or fewer items"
            )
        best = BestUsers(scorer.view.vectors(rows), k, run.bundle.manifest.scoring.absolute)
        if run.source.users is not None:
            refuse_repeated(run.source.users)
        users = opened.users(scorer, now_ms(), folder)
        blocks = users.blocks(run.part)
        with progress("Scoring", users.count) as advance:
            for load in blocks:
                block = load()
                _add(best, block, scorer, rows)
                count += len(block.users)
                advance(len(block.users))
        table = _table(best, scorer, rows, users.is_whole)
    with new_file(run.target, 0o600) as fresh, polars_errors_told(fresh):
        table.write_parquet(fresh)
    seconds = monotonic() - begun
    return (
        f"{table.height:,} rows of {len(rows):,} items and {count:,} users are in {run.target} "
        f"({seconds:.1f} s)"
    )


def _rows(scorer: Scorer, items: Path | None) -> NDArray[np.int64]:
    """The rows of the items of a file, or of all, that are served; ascending."""
    fresh = scorer.view.fresh
    is_served = np.append(np.ones(fresh.first_row, dtype=np.bool_), fresh.is_served)
    is_served[fresh.withdrawn] = False
    if items is None:
        return np.flatnonzero(is_served)
    rows: list[int] = []
    for ids in ids_of_file(items, PART, "item_id"):
        for item in ids:
            row = fresh.row(item)
            if row is None or not is_served[row]:
                version = scorer.model.version
                raise DataError(
                    f"{items}: version {version} has no item {shown(item)}; leave it out of the file"
                )
            rows.append(row)
    if not rows:
        raise DataError(f"{items} names no items, so nothing is written; name some, or leave --items out")
    return np.unique(np.array(rows, dtype=np.int64))


def _add(best: BestUsers, block: Block, scorer: Scorer, rows: NDArray[np.int64]) -> None:
    encoded, had = scorer.encode(block), block.had(scorer.view)
    if not len(encoded.places):
        return
    owners = np.searchsorted(encoded.places, had.owners)
    places = np.searchsorted(rows, had.rows)
    is_ranked = encoded.places[np.minimum(owners, len(encoded.places) - 1)] == had.owners
    is_ranked &= rows[np.minimum(places, len(rows) - 1)] == had.rows
    pairs = np.stack([places, owners], axis=1)[is_ranked]
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")].astype(np.int64)
    users = [block.users[place] for place in encoded.places.tolist()]
    best.add(_objects(users), encoded.vectors, pairs)


def _objects(values: Sequence[object]) -> NDArray[np.object_]:
    objects = np.empty(len(values), dtype=object)
    objects[:] = values
    return objects


def _table(best: BestUsers, scorer: Scorer, rows: NDArray[np.int64], is_whole: bool) -> pl.DataFrame:
    items, ranks = np.nonzero(best.products > -np.inf)
    temperature = np.float32(scorer.model.bundle.manifest.scoring.temperature)
    return pl.DataFrame(
        {
            "item_id": scorer.items.gather(rows[items]),
            "rank": (ranks + 1).astype(np.int32),
            "user_id": id_column(best.users[items, ranks].tolist(), is_whole),
            "score": best.products[items, ranks] / temperature,
        }
    )
