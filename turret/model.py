"""A bundle in this process: `turret.load`. It needs no extra."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from os import PathLike
from pathlib import Path
from time import time as now
from typing import Any, Literal, NamedTuple

import numpy as np

from turret.arguments import checked
from turret.data.errors import ArgumentError, MissingExtraError, shown
from turret.data.extras import install_hint
from turret.data.features.texts import QUERY
from turret.data.kinds import Seen
from turret.data.moments import FORMS, parse_moment
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import load as load_bundle
from turret.tower.catalog.filters import compile_filter
from turret.tower.counted_kinds import CountedKinds, ReadHistory, read_history, refusal_of
from turret.tower.errors import BundleError, EncodingError
from turret.tower.format.listing import bundle_folder
from turret.tower.repeats import Events, Slot
from turret.tower.retrieval import Retriever
from turret.tower.times import Times

Id = int | str
Moment = str | float | datetime
_BITS, _LONGEST_TIME = 1_000, 100  # most bits of an id or a time that is a whole number; characters


class Recommendation(NamedTuple):
    """One item of an answer.

    `score` is the inner product divided by the temperature, or the count of training events where `source` is
    "popular". `fields` are the item's fields in the catalog.
    """

    id: Id
    score: float
    source: Literal["towers", "popular"]
    fields: dict[str, Any]


class Model:
    """A bundle that answers in this process, as the service does over HTTP."""

    @checked
    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self._retriever = Retriever(bundle)

    @property
    def version(self) -> str:
        """The bundle's name."""
        return self.bundle.manifest.version

    @checked
    def recommend(
        self,
        history: Iterable[Id | Mapping[str, Any]],
        k: int = 10,
        *,
        features: Mapping[str, object] | None = None,
        context: Mapping[str, object] | None = None,
        exclude: Iterable[Id] = (),
        exclude_seen: bool | Sequence[str] | None = None,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 (its name over HTTP)
        at: Moment | None = None,
        among: Slot = "all",
    ) -> list[Recommendation]:
        """Return the k best next items, best first; fewer only if no more are allowed.

        Unknown ids are ignored. A history without a known id is answered by popularity.

        Args:
            history: the ids of the items used, oldest first, or `{"item": id, "kind": name, "time": when}`
                with the kind and the time of an event, or either. All events have a time, or none has:
                a date or time in ISO 8601 (UTC without an offset), or seconds or milliseconds since 1970.
                Events are merged as in preparation (docs/serving.md).
            k: the number of items.
            features: the user's features, for a user tower that reads some.
            context: the features of the request, such as the device, for a tower that reads them.
            exclude: ids that are not to be recommended.
            exclude_seen: leave out the items of the history, or of events of some kinds; by default as the
                bundle says.
            filter: a condition on the items' fields; see docs/filters.md.
            at: the time of the question, now by default; read where the events have times.
            among: rank all items, those without a use in the history (`new`), or those with one (`again`).

        Raises:
            EncodingError: the user tower has no such feature, or the value does not fit it.
            FilterError: the catalog has no such field, or the condition does not fit it.
            ArgumentError: `k` is not positive, an event has no item or other keys, times are missing,
                unreadable or not in order, the bundle doesn't have a kind, or `among` has no items, as all
                used ones are left out.
        """
        if self.bundle.manifest.reads_queries and (history := list(history)):
            raise BundleError(f"version {self.version} answers queries, and reads no history: call search")
        if isinstance(exclude_seen, bool | np.bool_ | None):
            seen: Seen = None if exclude_seen is None else bool(exclude_seen)
        else:
            seen = tuple(exclude_seen)
        if refusal := refusal_of(among, self.bundle.manifest, seen):
            raise ArgumentError(f"among = {among!r}: {refusal}")
        _check_count(k)
        try:
            self.bundle.encoder.check([features or {}], [context or {}])
        except EncodingError as error:
            message = f"{error.field} = {shown(error.value)}: {error}"
            raise EncodingError(error.position, error.field, error.value, message) from None
        rows, times, codes, left_out, _ = self._read(list(history), seen, at)
        excluded_rows, _ = self.bundle.vocabulary.known_rows(_ids("exclude", exclude))
        uses = Events.of_one(rows, times, codes, self.bundle.manifest.merging)
        excluded, only = uses.rows_of(among, np.concatenate([excluded_rows, left_out]))
        allowed = None if filter is None else compile_filter(filter, self.bundle.catalog).allowed()
        inputs = {**(features or {}), **(context or {})}
        if self.bundle.encoder.can_encode(rows, inputs):
            (vector,) = self._retriever.encode([rows], [inputs], [times], kinds=[codes])
            (bonus,) = self._retriever.bonus_of_each([rows], [times], [codes])
            ranking = self._retriever.nearest(vector, k, excluded, allowed, bonus, only)
            return self._items(ranking.rows, ranking.scores, "towers")
        if self.bundle.manifest.reads_queries or only is not None:
            return []
        ranking = self._retriever.popular(k, excluded, allowed)
        return self._items(ranking.rows, ranking.scores, "popular")

    @checked
    def search(
        self,
        query: str | None = None,
        k: int = 10,
        *,
        features: Mapping[str, object] | None = None,
        exclude: Iterable[Id] = (),
        filter: Mapping[str, Any] | None = None,  # noqa: A002 (its name over HTTP)
    ) -> list[Recommendation]:
        """Return the k items that answer a query best; none for a text without a known part.

        Args:
            query: the text of the query.
            k: the number of items.
            features: other features of the query, such as its ready vector, by name.
            exclude: ids that are not to be answered.
            filter: a condition on the items' fields; see docs/filters.md.

        Raises:
            BundleError: the bundle recommends for users.
            EncodingError, FilterError, ArgumentError: as `recommend`.
        """
        if not self.bundle.manifest.reads_queries:
            raise BundleError(f"version {self.version} recommends for users, not for queries: call recommend")
        query_features = {**({} if query is None else {QUERY: query}), **(features or {})}
        return self.recommend((), k, features=query_features, exclude=exclude, filter=filter)

    @checked
    def similar(self, item: Id, k: int = 10) -> list[Recommendation]:
        """Return the k items nearest to an item, best first.

        Raises BundleError for an unknown item, ArgumentError as `recommend`.
        """
        _check_count(k)
        (item_id,) = _ids("item", [item])
        if (row := self.bundle.vocabulary.row(item_id)) is None:
            raise BundleError(f"version {self.version} has no item {shown(item)}")
        ranking = self._retriever.similar(row, k)
        return self._items(ranking.rows, ranking.scores, "towers")

    @checked
    def score(
        self,
        *,
        data: str | PathLike[str] | None = None,
        store: str | None = None,
        users: str | PathLike[str] | None = None,
        by_index: bool = False,
        at: Moment | None = None,
        k: int = 20,
        **conditions: object,
    ) -> Any:
        """Return a Polars frame of every user's items, best first: user_id, rank, item_id, score, source.

        `turret score` writes the same rows into a file, whatever their number. Both need the extras `train`
        and `serve`.

        Args:
            data: prepared data with the users and their histories.
            store: the address of the service's store with them.
            users: a file of the users to score, and without `data` and `store` of their histories.
            by_index: search the bundle's index, with its recall, instead of all items.
            at: the time of the lists; now by default.
            k: the number of items a user.
            conditions: other fields of `POST /v1/recommend`: `filter`, `rules`, `boost`, `pin`, `exclude`,
                `exclude_seen`, `min_score`, `diversity`, `cap`, `among`, `features`, `context`.

        Raises:
            ConfigurationError: no request of this version can have these conditions, or no users are named.
            DataError, ServiceError: the users can't be read.
        """
        try:
            from turret.scoring.frame import score_frame
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                f"Model.score: {install_hint(error) or error}", name=error.name
            ) from error
        folder, file = (None if path is None else Path(path) for path in (data, users))
        when = at.isoformat() if isinstance(at, datetime) else at
        return score_frame(self.bundle, folder, file, store, by_index, {"k": k, "at": when, **conditions})

    def _read(
        self,
        history: Sequence[Id | Mapping[str, Any]],
        seen: Seen,
        at: Moment | None,
    ) -> ReadHistory:
        """The events as the service reads them."""
        manifest = self.bundle.manifest
        events: list[Mapping[str, Any]] = [
            entry if isinstance(entry, Mapping) else {"item": entry} for entry in history
        ]
        for event in events:
            if not {"item"} <= event.keys() <= {"item", "kind", "time"}:
                form = '{"item": ID, "kind": NAME, "time": TIME}'
                raise ArgumentError(f"{dict(event)} is no event; give an id, or {form}")
        kinds = [event.get("kind") for event in events]
        named = [*kinds, *(seen if isinstance(seen, tuple) else ())]
        for kind in named:
            if not isinstance(kind, str | None):
                raise ArgumentError(f"kind = {shown(kind)}: give a text")
        unknown = [kind for kind in named if kind is not None and kind not in manifest.kinds]
        if manifest.kinds and unknown:
            known = ", ".join(manifest.kinds)
            message = f"version {self.version} has no kind {shown(unknown[0])}; give one of {known}"
            raise ArgumentError(message)
        counted, items = CountedKinds(manifest, seen), _ids("history", (event["item"] for event in events))
        times = _times([event.get("time") for event in events], at)
        return read_history(self.bundle.vocabulary, counted, items, kinds, times)

    def _items(
        self, rows: Sequence[int] | Any, scores: Any, source: Literal["towers", "popular"]
    ) -> list[Recommendation]:
        ids = self.bundle.vocabulary.ids(rows)
        return [
            Recommendation(outside, float(score), source, self.bundle.catalog.of(int(row)))
            for outside, row, score in zip(ids, rows, scores, strict=True)
        ]


def _check_count(k: int) -> None:
    if k < 1:
        raise ArgumentError(f"k = {k}: it must be at least 1")


def _ids(name: str, values: Iterable[Any]) -> list[Id]:
    """The ids of an argument. Raises ArgumentError for a value that is no id: a list, true, a huge number."""
    ids = list(values)
    for item_id in ids:
        is_huge = isinstance(item_id, int) and item_id.bit_length() > _BITS
        is_list = (np.iterable(item_id) and not isinstance(item_id, str)) or not isinstance(item_id, Hashable)
        if isinstance(item_id, bool | np.bool_) or is_huge or is_list:
            raise ArgumentError(f"{name} has {shown(item_id)}, which is no id; give whole numbers or texts")
    return ids


def _times(event_times: Sequence[Moment | None], at: Moment | None) -> Times | None:
    """The times of events, None if no event has one. Raises ArgumentError for missing or unordered times."""
    if all(time is None for time in event_times):
        return None
    times = [*event_times, at] if at is not None else event_times
    parsed = [None if time is None or _is_far(time) else parse_moment(str(time)) for time in times]
    for time, milliseconds in zip(times, parsed, strict=True):
        if milliseconds is None:
            raise ArgumentError(f"time = {shown(time)}: {FORMS}, for all events or none")
    seconds = np.array(parsed, dtype=np.float64) / 1_000
    seconds = seconds if at is not None else np.append(seconds, max(seconds[-1], now()))
    if (np.diff(seconds) < 0).any():
        raise ArgumentError("the times of the history are not in order, or `at` is before the newest of them")
    return Times(seconds[:-1], float(seconds[-1]))


def _is_far(time: object) -> bool:
    """Whether a number is too large, or a text too long, for a time: Python limits the digits of a number."""
    return time.bit_length() > _BITS if isinstance(time, int) else len(str(time)) > _LONGEST_TIME


@checked
def load(bundle: str | PathLike[str]) -> Model:
    """Open a bundle, or the current one of a folder of bundles, and check it as the service does.

    Raises:
        BundleError: there is no bundle, or it is damaged: checksums, shapes or recorded answers differ.
    """
    folder = bundle_folder(Path(bundle)).resolve()
    return Model(load_bundle(folder.parent, folder.name))
