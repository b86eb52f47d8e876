"""The users of prepared data, with the histories of a block as arrays."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turret.data.errors import ConfigurationError
from turret.data.prepared import HistoryEnd, Part, PreparedData
from turret.data.vocabulary import STRANGER, Id
from turret.history.loading import KeptEvents, all_negatives, kept_events
from turret.scoring.scorer import Block, QueryBlock, Scorer
from turret.scoring.shared_search import Encoded, Pairs
from turret.scoring.users import Load, are_whole, ids_of_file, in_blocks
from turret.service.ranking.item_view import ItemView
from turret.service.ranking.query import make_query
from turret.service.schemas.requests import RecommendRequest
from turret.service.stores.contract import History
from turret.tower.errors import EncodingError
from turret.tower.times import Times


class DataUsers:
    """The users of prepared data, or the `users` named, with all their events as a store would hold them.

    `history` ends where the part begins that it names; only users with a target in this part count then. Each
    user has their prepared features, as far as the bundle reads them; those of the request come first. A user
    without events is answered as an unknown one.
    """

    def __init__(
        self,
        data: PreparedData,
        request: RecommendRequest,
        now: int,
        limit: int,
        scorer: Scorer,
        users: Path | None = None,
        history: HistoryEnd = "end",
    ) -> None:
        if data.has_queries:
            raise ConfigurationError(
                f"{data.folder} holds queries, which have no history; search for them instead"
            )
        self._data, self._now, self._limit = data, now, limit
        self._request, self._scorer = request, scorer
        both = (*data.user_features.features, *data.context_features.features)
        prepared = {feature.name for feature in both}
        self._features = [name for name in scorer.user_features if name in prepared]
        self._users, self._ends = users, data.history_ends(history)
        self._part: Part | None = None if history == "end" else history
        self._negatives = all_negatives(data, self._ends)
        ids = data.item_ids.ids(range(len(data.item_ids)))
        self._items = np.array(ids, dtype=object)
        self._rows = np.array(
            [-1 if row is None else row for row in map(scorer.view.fresh.row, ids)], np.int64
        )
        self.count = len(data.users) if users is None else None
        self.is_whole = data.users.kind == "integer" if users is None else are_whole(users)

    def blocks(self, size: int) -> Iterator[Load]:
        """Users in the order of the data, without the sessions of strangers, or in the order of the file."""
        if self._users is not None:
            for ids in ids_of_file(self._users, size):
                yield lambda ids=ids: self._block(ids, [self._data.users.row(user) for user in ids])  # type: ignore[misc]
            return
        for rows in in_blocks(range(len(self._data.users)), size):
            yield lambda rows=rows: self._of_rows(rows)  # type: ignore[misc]

    def _of_rows(self, rows: Sequence[int]) -> Block:
        ids = self._data.users.ids(rows)
        known = [place for place, user in enumerate(ids) if not str(user).startswith(STRANGER)]
        return self._block([ids[place] for place in known], [rows[place] for place in known])

    def _block(self, ids: Sequence[Id], rows: Sequence[int | None]) -> Block:
        """The users with these ids; a row of None is of a user whom the data doesn't have."""
        places = np.array([place for place, row in enumerate(rows) if row is not None], dtype=np.int64)
        known = np.array([row for row in rows if row is not None], dtype=np.int64)
        request_times = np.full(len(ids), self._now)
        if self._part is not None:
            starts, ends = (bounds[known] for bounds in self._data.bounds(self._part))
            has_target = np.flatnonzero(self._data.first_targets(starts, ends) < ends)
            known, ids = known[has_target], [ids[place] for place in places[has_target].tolist()]
            places, request_times = np.arange(len(ids)), np.full(len(ids), self._now)
            if self._data.manifest.time.kind == "timestamp":  # an evaluation ranks at the target's time, too
                request_times = np.asarray(self._data.times[self._ends[known]]).astype(np.int64)
        kept = kept_events(self._data, self._negatives, known, self._limit, self._now, self._ends[known])
        owners, rows_of_items = places[kept.owners], self._rows[kept.items]
        # An event slightly ahead of the clock counts, so its user is answered for its time.
        np.maximum.at(request_times, owners, kept.stored)
        features = [self._request.inputs] * len(ids)
        for place, row in zip(places.tolist() if self._features else (), known.tolist(), strict=False):
            raw = self._data.user_features.raw(row) | self._data.context_values(row, int(self._ends[row]))
            features[place] = {name: raw[name] for name in self._features if name in raw} | features[place]
        block = HistoryBlock(ids, features, request_times, owners, rows_of_items, kept)
        return block if self._scorer.shared is not None else self._as_queries(block)

    def _as_queries(self, block: "HistoryBlock") -> QueryBlock:
        """The same users, each with a query."""
        items, times = self._items[block.kept.items].tolist(), block.kept.stored.tolist()
        names, codes = block.kept.names, block.kept.codes.tolist()
        manifest = self._scorer.model.bundle.manifest
        kinds = [names[code] for code in codes] if any(names) else []
        bounds = np.searchsorted(block.owners, np.arange(len(block.users) + 1)).tolist()
        queries = []
        for place, (user, (start, end)) in enumerate(zip(block.users, pairwise(bounds), strict=True)):
            changed = {"user_id": user, **manifest.fields_of(block.features[place])}
            history = History(items[start:end], times[start:end], kinds[start:end])
            request = self._request.model_copy(update=changed)
            queries.append(make_query(request, history, (), int(block.request_times[place])))
        return QueryBlock(block.users, queries)


class HistoryBlock(NamedTuple):
    """Some users, with the features of each, the time for which each is answered, and their events.

    `kept` are their E events by user and time, which `owners` int64 [E] assign to users; `rows` int64 [E] are
    the items of the version, -1 for others.
    """

    users: Sequence[Id]
    features: Sequence[Mapping[str, Any]]
    request_times: NDArray[np.int64]
    owners: NDArray[np.int64]
    rows: NDArray[np.int64]
    kept: KeptEvents

    def had(self, view: ItemView) -> Pairs:
        """The users and the items of all events."""
        is_known = self.rows >= 0
        return Pairs(self.owners[is_known], self.rows[is_known])

    def encoded(self, scorer: Scorer) -> Encoded:
        """The users as the version reads their events; raises EncodingError."""
        counted, manifest, kept = scorer.counted, scorer.model.bundle.manifest, self.kept
        codes = counted.codes(kept.names)[kept.codes]
        request_times = self.request_times[self.owners]
        count = counted.count_of_each(self.owners, kept.items, codes, kept.stored, request_times)
        is_known = self.rows >= 0
        out, read = is_known & count.are_left_out, is_known & count.are_read
        lengths = np.bincount(self.owners[read], minlength=len(self.users))
        places = np.flatnonzero(lengths)
        bounds = [*pairwise(np.cumsum(np.append(0, lengths[places])).tolist())]
        rows, codes, seconds = self.rows[read], count.codes[read], kept.stored[read] / 1000.0
        times: list[Times] | None = None
        if manifest.reads_times:
            times = [
                Times(seconds[start:end], moment)
                for (start, end), moment in zip(
                    bounds, (self.request_times[places] / 1000.0).tolist(), strict=True
                )
            ]
        try:
            vectors = scorer.model.bundle.encoder.encode(
                [rows[start:end] for start, end in bounds],
                [self.features[place] for place in places.tolist()],
                times,
                kinds=[codes[start:end] for start, end in bounds] if manifest.reads_kinds else None,
            )
        except EncodingError as error:
            raise EncodingError(int(places[error.position]), error.field, error.value, str(error)) from None
        return Encoded(places, vectors, Pairs(self.owners[out], self.rows[out]))
