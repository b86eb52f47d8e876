"""The answer to a query: its JSON, and its record for the observation of the service."""

from collections.abc import Container
from typing import Any

import numpy as np
import orjson

from turret.data.vocabulary import Id
from turret.service.observing.quality import AnswerRecord
from turret.service.overlay.fresh import FreshItems
from turret.service.ranking.item_view import ItemView
from turret.service.ranking.query import Query
from turret.service.schemas.fields import HISTORY_LIMIT, Cursor
from turret.tower.retrieval import Ranking

_BEFORE_ALL = float(np.finfo(np.float32).max), 0
Answer = dict[str, Any]  # serialised later; its items are JSON already


def record_of(query: Query, ranking: Ranking, fresh: FreshItems) -> AnswerRecord:
    """The record of an answer for metrics, recall and drift."""
    rows, scores, _ = ranking
    source = query.source
    if len(fresh) and len(rows) and rows.max() >= fresh.first_row:
        source = "fresh"
    vector = query.vector if query.is_plain and query.only is None else None
    allowed = None if query.allowed is None else query.allowed.mask
    k, left_out = query.request.k, query.left_out
    if query.bonus is not None:  # recall measures the index, which finds the other items alone
        by_index = ~np.isin(rows, query.bonus.rows)
        rows, scores, k = rows[by_index], scores[by_index], int(by_index.sum())
        left_out = np.concatenate([left_out, query.bonus.rows])
    known, unknown = len(query.rows), len(query.unknown)
    return AnswerRecord(source, k, known, unknown, vector, left_out, allowed, rows, scores)


def answer_of(query: Query, ranking: Ranking, view: ItemView) -> Answer:
    """The answer, with the items of a ranking; a full answer in the order of the scores has a cursor."""
    request, kind = query.request, ranking.plan.kind
    manifest = view.bundle.manifest
    drawn = () if query.explored is None else query.explored.drawn
    items = _items_json(view, ranking, query.source, {*query.pins.values()}, drawn)
    if query.explored is not None:  # the next page is that of the usual ranking
        ranking = query.explored.usual
    answer: Answer = {"version": manifest.version, "items": orjson.Fragment(items)}
    if len(ranking.rows) < request.k:
        answer["exhausted"] = True
    answer["degraded"] = list(query.degraded)
    if kind == "fallback":
        answer["degraded"].append("engine")
    if query.lacks_rules:
        answer["degraded"].append("rules")
    if query.unknown or query.unknown_pins:
        answer["unknown_items"] = list(dict.fromkeys([*query.unknown, *query.unknown_pins]))[-HISTORY_LIMIT:]
    if "exhausted" not in answer and request.is_in_order and not (query.pins and _has_ended(query, ranking)):
        shown = len(ranking.rows) + (query.after.shown if query.after else 0)
        last = float(ranking.scores[-1]), int(ranking.rows[-1])
        if query.pins:
            last = _last_ranked(query, ranking)
        # Without the time in their cursors, equal requests have equal answers but for the ids of these.
        is_timed = manifest.uses_times or (manifest.kinds and query.history_times is not None)
        until = query.until if query.is_stored or is_timed or query.popular is not None else 0
        counted = "" if query.popular is None else query.popular.tag
        answer["cursor"] = Cursor(manifest.version, until, shown, *last, request.among, counted).text()
    return answer


def _has_ended(query: Query, ranking: Ranking) -> bool:
    """Whether pins of later positions are in the answer, as no other items are left."""
    first = 1 + (query.after.shown if query.after else 0)
    of_page = sum(first <= position < first + query.request.k for position in query.pins)
    return bool(np.isin(ranking.rows, [*query.pins.values()]).sum() > of_page)


def _last_ranked(query: Query, ranking: Ranking) -> tuple[float, int]:
    """The score and the row of the last item without a pin, from which the next page goes on."""
    (ranked,) = np.nonzero(~np.isin(ranking.rows, [*query.pins.values()]))
    if len(ranked):
        return float(ranking.scores[ranked[-1]]), int(ranking.rows[ranked[-1]])
    return (query.after.score, query.after.row) if query.after else _BEFORE_ALL


def _items_json(
    view: ItemView, ranking: Ranking, source: str, pinned: Container[int], drawn: Container[int]
) -> bytes:
    """The items of an answer as JSON; `source` is the source of items that are not fresh.

    The catalog has the items as JSON already, so nothing is parsed or serialised.
    """
    fresh, first = view.fresh, view.fresh.first_row
    # The JSON of numbers has no commas but the separators.
    scores = orjson.dumps(ranking.scores.tolist())[1:-1].split(b",")
    ends = [b',"source":"%b"' % name.encode() for name in (source, "fresh")]
    pin, draw = b',"pinned":true}', b',"explored":true}'
    is_changed = fresh.places or fresh.replaced.by_row
    item = view.item_json if is_changed else view.bundle.catalog.item_json
    pieces = [
        b'{%b,"score":%b%b%b'
        % (
            item(row),
            score,
            ends[row >= first],
            pin if row in pinned else draw if row in drawn else b"}",
        )
        for row, score in zip(ranking.rows.tolist(), scores, strict=bool(len(ranking.rows)))
    ]
    return b"[%b]" % b",".join(pieces)


def ids_of(answer: Answer) -> list[Id]:
    """The ids of the items of an answer, best first."""
    return [item["id"] for item in orjson.loads(orjson.dumps(answer))["items"]]
