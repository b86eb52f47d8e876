"""The rows of the log of answers, as Arrow tables."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from turret.data.answers.files import SCHEMA
from turret.data.answers.form import visitor_of
from turret.service.answer_log.entries import LoggedAnswer, ShownItems

_LAST_PLACE = 2**16 - 1  # a cursor that a client made up may begin behind it


def table_of(answers: Sequence[LoggedAnswer], key: bytes) -> pa.Table:
    """Make a table of answers, with the name of each visitor under `key`."""
    shown = [answer.shown for answer in answers]
    counts = [len(items.rows) for items in shown]
    starts = np.cumsum([0, *counts])
    rows = np.concatenate([items.rows for items in shown])
    places = np.arange(len(rows)) - np.repeat(starts[:-1] - [items.first_place for items in shown], counts)
    propensities = np.ones(len(rows))
    for start, items in zip(starts.tolist(), shown, strict=False):
        if items.propensities is not None:
            propensities[start : start + len(items.rows)] = items.propensities
    is_fresh = rows >= np.repeat([items.fresh.first_row for items in shown], counts)
    sources = np.where(is_fresh, "fresh", np.repeat([items.source for items in shown], counts))
    offsets = pa.array(starts, pa.int32())

    def listed(name: str, values: Any) -> pa.Array:
        kind = SCHEMA.field(name).type
        return pa.ListArray.from_arrays(offsets, pa.array(values, kind.value_type), type=kind)

    columns = {
        "answer_id": [answer.answer_id for answer in answers],
        "time": [answer.time for answer in answers],
        "call": [answer.call for answer in answers],
        "version": [answer.version for answer in answers],
        "route": [answer.route for answer in answers],
        "visitor": ["" if answer.user is None else visitor_of(answer.user, key) for answer in answers],
        "items": listed("items", _ids(shown)),
        "places": listed("places", np.minimum(places, _LAST_PLACE).astype(np.uint16)),
        "scores": listed("scores", np.concatenate([items.scores for items in shown])),
        "sources": listed("sources", sources.tolist()),
        "propensities": listed("propensities", propensities),
        "context": [orjson.dumps(answer.context).decode() if answer.context else "{}" for answer in answers],
        "rules": [answer.rules for answer in answers],
    }
    return pa.table([pa.array(columns[name], SCHEMA.field(name).type) for name in SCHEMA.names], SCHEMA)


def _ids(shown: Sequence[ShownItems]) -> list[str]:
    """The ids of all items as texts; each row of a version is named once."""
    names: list[str] = []
    for _, group in groupby(shown, key=lambda items: id(items.fresh)):
        of_version = list(group)
        rows, places = np.unique(np.concatenate([items.rows for items in of_version]), return_inverse=True)
        texts = [str(of_version[0].fresh.id(row)) for row in rows.tolist()]
        names += [texts[place] for place in places.tolist()]
    return names
