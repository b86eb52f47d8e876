"""From queries to answers of one version: rows, vectors, search, JSON. Synchronous, without I/O."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from turret.data.vocabulary import Id
from turret.service.errors import ConflictError, NotFoundError, RequestError, invalid_fields
from turret.service.observing.quality import AnswerRecord
from turret.service.overlay.fresh import FreshItems
from turret.service.ranking.explaining import explain, without_each
from turret.service.ranking.item_view import ItemView
from turret.service.ranking.query import (
    CountedHistory,
    Query,
    ResolvedQuery,
    check_among,
    count_history,
    wrong_kinds,
)
from turret.service.ranking.searching import left_out, nearest, nearest_of_each, select
from turret.service.schemas.fields import HISTORY_LIMIT, Cursor
from turret.service.schemas.requests import RecommendRequest
from turret.service.versions.holder import LoadedModel
from turret.service.versions.record import conditions_of
from turret.tower.catalog.conditions import every
from turret.tower.catalog.filters import Filter, compile_filter
from turret.tower.errors import EncodingError, FilterError, first_with_others
from turret.tower.format.manifest import Manifest
from turret.tower.repeats import Events
from turret.tower.retrieval import Ranking
from turret.tower.times import Times

Answer = dict[str, Any]  # serialised later; its items are JSON already
Stages = dict[str, float]
_NOTHING = np.empty(0, np.int32)


def recommend(
    model: LoadedModel,
    fresh: FreshItems,
    queries: Sequence[Query],
    stages: Stages | None = None,
    records: list[AnswerRecord] | None = None,
) -> list[Answer]:
    """Answer every query: by the towers if any item of its history is known, else by popularity.

    A query that is `similar_to` an item is answered by the item's vector.

    Adds the seconds of each stage to `stages`, and a record of each recommendation to `records`. Raises
    RequestError for fields that the version can't read, and EncodingError for features whose vector is not
    finite; both have the position of the query.
    """
    stages = {} if stages is None else stages
    begun = perf_counter()
    view = ItemView(model.bundle, fresh)
    resolved = _resolve(view, queries)
    looked_up = perf_counter()
    _encode(model, view, resolved)
    encoded = perf_counter()
    ranked = list(zip(resolved, _rankings(model, view, resolved), strict=True))
    searched = perf_counter()
    answers = [_answer(view, *pair) for pair in ranked]
    stages |= {
        "rows": looked_up - begun,
        "encode": encoded - looked_up,
        "search": searched - encoded,
        "answer": perf_counter() - searched,
    }
    if records is not None:
        records += [_record(fresh, *pair) for pair in ranked if pair[0].query.similar_to is None]
    for answer, (entry, ranking) in zip(answers, ranked, strict=True):
        if entry.query.request.explain:
            took = {stage: round(seconds * 1e3, 4) for stage, seconds in stages.items()}
            answer["explanation"] = {**_explanation(model, view, entry, ranking), "milliseconds": took}
    return answers


def ids_of(answer: Answer) -> list[Id]:
    """The ids of the items of an answer, best first."""
    return [item["id"] for item in orjson.loads(orjson.dumps(answer))["items"]]


def _resolve(view: ItemView, queries: Sequence[Query]) -> list[ResolvedQuery]:
    counted = [count_history(query, view.bundle.manifest) for query in queries]
    known = view.known_rows_of_each([history.items for history in counted])
    resolved: list[ResolvedQuery] = []
    try:
        for query, history, found in zip(queries, counted, known, strict=True):
            resolved.append(_in_rows(view, query, history, *found))
    except RequestError as error:
        error.position = len(resolved)
        raise
    return resolved


def _in_rows(
    view: ItemView, query: Query, counted: CountedHistory, rows: NDArray[np.int32], unknown: list[Id]
) -> ResolvedQuery:
    request, manifest = query.request, view.bundle.manifest
    if query.similar_to is None:
        _check_kind(request, manifest)
    if query.after is not None and query.after.version != manifest.version:
        version = query.after.version
        message = f"this cursor is of version {version}, which is no longer live; request the first page"
        raise ConflictError("cursor", None, message)
    check_among(query, manifest)
    by_rules = conditions_of(query.rules, view.bundle.catalog, manifest.version) if query.rules else []
    filtering = _read_filter(view, request)
    excluded = view.known_rows(request.exclude)[0] if request.exclude else _NOTHING
    if counted.left_out is None or counted.left_out:
        seen = rows if counted.left_out is None else view.known_rows(counted.left_out)[0]
        excluded = np.concatenate([excluded, seen]) if len(excluded) else seen
    if by_rules:
        own = [filtering.condition] if filtering else []
        filtering = Filter(every([*own, *by_rules]), view.bundle.catalog)
    times, kinds = _read_beside(view, query, counted, len(unknown) > 0)
    resolved = ResolvedQuery(query, rows, times, kinds, unknown, excluded, filtering)
    if query.needs_uses:
        resolved.uses = Events.of_one(rows, times, kinds, manifest.merging)
        resolved.excluded, resolved.only = resolved.uses.rows_of(request.among, excluded)
    return resolved if query.similar_to is None else _by_item(view, resolved, query.similar_to)


def _read_filter(view: ItemView, request: RecommendRequest) -> Filter | None:
    """Return the filter. Raises InvalidFieldError for all that the version lacks or can't read of a request.

    That are kinds, fields in the filter and the caps, and features.
    """
    bundle, filtering = view.bundle, None
    wrong = wrong_kinds(request, bundle.manifest) if bundle.manifest.kinds else []
    try:
        filtering = compile_filter(request.filter, bundle.catalog) if request.filter else None
    except FilterError as error:
        wrong += invalid_fields(error)
    wrong += [view.no_field(name, f"cap.{name}") for name in request.cap if name not in bundle.catalog.kinds]
    try:
        bundle.encoder.check([request.features])
    except EncodingError as error:
        wrong += invalid_fields(error)
    if wrong:
        raise first_with_others(wrong)
    return filtering


def _check_kind(request: RecommendRequest, manifest: Manifest) -> None:
    """Refuse a search of a version that reads users, and a recommendation of one that reads queries."""
    if request.is_search and not manifest.reads_queries:
        message = f"version {manifest.version} recommends for users, not for queries: POST /v1/recommend"
        raise ConflictError("query", None, message)
    if manifest.reads_queries and not request.features:
        message = f"version {manifest.version} answers queries, not users: POST /v1/search"
        raise ConflictError("features", None, message)


def _by_item(view: ItemView, resolved: ResolvedQuery, item: str) -> ResolvedQuery:
    """The query by the vector of an item, without its bias, as popularity is no similarity."""
    row = view.row(item)
    if row is None:
        message = f"version {view.bundle.manifest.version} has no such item; check the id"
        raise NotFoundError("id", item, message)
    vector = view.vectors(np.array([row]))[0]
    if view.bundle.manifest.scoring.item_bias:
        vector = np.append(vector[:-1], np.float32(0.0))
    return replace(resolved, vector=vector, excluded=np.append(resolved.excluded, np.int32(row)))


def _read_beside(
    view: ItemView, query: Query, counted: CountedHistory, is_some_unknown: bool
) -> tuple[Times | None, NDArray[np.int64] | None]:
    """The times and the kinds of the known items of the history, as far as they are read."""
    manifest = view.bundle.manifest
    times = counted.times if manifest.uses_times or query.needs_uses else None
    kinds = counted.kinds if manifest.uses_kinds or query.needs_uses else None
    if times is None and kinds is None:
        return None, None
    are_known: Any = slice(None)
    if is_some_unknown:
        are_known = [view.row(item) is not None for item in counted.items]
    kinds = None if kinds is None else kinds[are_known]
    if times is None:
        return None, kinds
    events = np.array(times, dtype=np.float64)[are_known]
    return Times(events / 1000.0, query.request_time / 1000.0), kinds


def _explanation(
    model: LoadedModel, view: ItemView, entry: ResolvedQuery, ranking: Ranking
) -> dict[str, Any]:
    shorter = without_each(entry)
    _encode(model, view, list(shorter.values()))
    return explain(view, entry, ranking, shorter)


def _encode(model: LoadedModel, view: ItemView, resolved: Sequence[ResolvedQuery]) -> None:
    """Set the vectors of histories with known items, and of queries with known grams, and their bonuses."""
    can_encode = view.bundle.encoder.can_encode
    known = [
        position
        for position, entry in enumerate(resolved)
        if entry.vector is None and can_encode(entry.rows, entry.query.request.features)
    ]
    if not known:
        return
    chosen = [resolved[position] for position in known]
    try:
        vectors = view.encode(
            [entry.rows for entry in chosen],
            [entry.query.request.features for entry in chosen],
            [entry.times for entry in chosen],
            [entry.kinds for entry in chosen] if view.bundle.manifest.reads_kinds else None,
        )
    except EncodingError as error:
        raise EncodingError(known[error.position], error.field, error.value, str(error)) from None
    for entry, vector in zip(chosen, vectors, strict=True):
        entry.vector = vector
    _add_bonuses(model, resolved)


def _add_bonuses(model: LoadedModel, resolved: Sequence[ResolvedQuery]) -> None:
    """Set the bonuses of a repeat term, where an item of a history may be in its answer."""
    if model.bundle.manifest.repeats is None:
        return
    for entry in resolved:
        if entry.vector is not None and not np.isin(entry.rows, entry.excluded).all():
            (entry.bonus,) = model.retriever.bonus_of_each([entry.rows], [entry.times], [entry.kinds])


def _rankings(model: LoadedModel, view: ItemView, resolved: Sequence[ResolvedQuery]) -> list[Ranking]:
    """The ranking of each query; those without further conditions are searched for together."""
    plain = [entry for entry in resolved if entry.is_plain]
    if len(plain) < 2 or view.bundle.manifest.index.is_remote:
        return [_select(model, view, entry) for entry in resolved]
    found = iter(nearest_of_each(model, view.fresh, plain))
    return [next(found) if entry.is_plain else _select(model, view, entry) for entry in resolved]


def _select(model: LoadedModel, view: ItemView, entry: ResolvedQuery) -> Ranking:
    if entry.query.is_plain:
        return nearest(model, view.fresh, entry, entry.query.request.k)
    ranked = partial(nearest, model, view.fresh, entry)
    return select(ranked, entry.query, view, by_towers=entry.vector is not None)


def _answer(view: ItemView, entry: ResolvedQuery, ranking: Ranking) -> Answer:
    request, kind = entry.query.request, ranking.plan.kind
    items = view.ranked_json(ranking, "popular" if kind == "popularity" else "towers")
    version = view.bundle.manifest.version
    answer: Answer = {"version": version, "items": orjson.Fragment(items)}
    if len(ranking.rows) < request.k:
        answer["exhausted"] = True
    answer["degraded"] = list(entry.query.degraded)
    if kind == "fallback":
        answer["degraded"].append("engine")
    if entry.unknown:
        answer["unknown_items"] = list(dict.fromkeys(entry.unknown))[-HISTORY_LIMIT:]
    if "exhausted" not in answer and request.is_in_order:
        answer["cursor"] = _cursor(view, entry.query, ranking).text()
    return answer


def _record(fresh: FreshItems, entry: ResolvedQuery, ranking: Ranking) -> AnswerRecord:
    rows, scores, plan = ranking
    known, unknown = len(entry.rows), len(entry.unknown)
    source = "popular" if plan.kind == "popularity" else "towers"
    if len(fresh) and len(rows) and rows.max() >= fresh.first_row:
        source = "fresh"
    plain = entry.vector if entry.query.is_plain and entry.only is None else None
    excluded, allowed = left_out(fresh, entry)
    mask = None if allowed is None else allowed.mask
    k = entry.query.request.k
    if entry.bonus is not None:  # recall is that of the index, which finds the other items alone
        found = ~np.isin(rows, entry.bonus.rows)
        rows, scores, k = rows[found], scores[found], int(found.sum())
        excluded = np.concatenate([excluded, entry.bonus.rows])
    return AnswerRecord(source, k, known, unknown, plain, excluded, mask, rows, scores)


def _cursor(view: ItemView, query: Query, ranking: Ranking) -> Cursor:
    manifest, shown = view.bundle.manifest, query.after.shown if query.after else 0
    last = float(ranking.scores[-1]), int(ranking.rows[-1])
    # Without the time, equal requests have equal answers.
    is_timed = manifest.uses_times or (manifest.kinds and query.times is not None)
    until = query.until if query.is_stored or is_timed else 0
    return Cursor(manifest.version, until, shown + len(ranking.rows), *last, query.request.among)
