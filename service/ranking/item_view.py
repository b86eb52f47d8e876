"""The items of one version and its overlay: ids, fields and vectors by row."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from turret.service.errors import InvalidFieldError, NotFoundError
from turret.service.overlay.fresh import FreshItems
from turret.service.versions.holder import LoadedModel
from turret.tower.bundle.bundle import Bundle
from turret.tower.catalog.columns import Coded

Vectors = NDArray[np.float32]


class ItemView:
    """A `bundle` and its `fresh` items, by row.

    `more_vectors` float32 [M, D] are the vectors of the fresh items; None if there are none.
    """

    def __init__(self, bundle: Bundle, fresh: FreshItems) -> None:
        self.bundle = bundle
        self.fresh = fresh
        self.id = fresh.id if len(fresh) else bundle.vocabulary.id
        self.more_vectors = fresh.vectors if len(fresh) else None

    def json_of(self, row: int) -> bytes:
        """The fields of an item as JSON."""
        fields = self.fresh.fields_of(row)
        return self.bundle.catalog.json_of(row) if fields is None else fields

    def item_json(self, row: int) -> bytes:
        """The JSON members of an item of an answer: `"id":7,"fields":{"title":"Heat"}`."""
        fields = self.fresh.fields_of(row)
        if fields is None:
            return self.bundle.catalog.item_json(row)
        return b'"id":%b,"fields":%b' % (orjson.dumps(self.id(row)), fields)

    def fields(self, row: int) -> dict[str, Any]:
        """The fields of an item, parsed."""
        fields: dict[str, Any] = orjson.loads(self.json_of(row))
        return fields

    def coded(self, names: Iterable[str], rows: NDArray[np.integer[Any]]) -> list[Coded]:
        """For each field, the distinct values of each row."""
        changed: dict[int, dict[str, Any]] = {}
        if self.fresh.places or self.fresh.replaced.by_row:
            of_each = enumerate(map(self.fresh.fields_of, rows.tolist()))
            changed = {place: orjson.loads(text) for place, text in of_each if text is not None}
            rows = np.where(rows < self.fresh.first_row, rows, 0)
        catalog = self.bundle.catalog
        return [
            catalog.coded(name, rows, {place: fields.get(name) for place, fields in changed.items()})
            for name in names
        ]

    def no_field(self, name: str, where: str) -> InvalidFieldError:
        """The refusal of `where` in a request, as items don't have the field `name`."""
        fields = self.bundle.catalog.kinds
        known = f"they have {', '.join(fields)}" if fields else "they have none"
        return InvalidFieldError(where, name, f"items have no such field; {known}")

    def vectors(self, rows: NDArray[np.integer[Any]]) -> Vectors:
        """The vectors [B, D] of rows [B]."""
        return self.bundle.encoder.gather(rows, self.more_vectors)

    def directions(self, rows: NDArray[np.integer[Any]]) -> Vectors:
        """Item vectors without the bias column, for item-item similarity."""
        vectors = self.vectors(rows)
        return vectors[:, :-1] if self.bundle.manifest.scoring.item_bias else vectors


def item_status(
    model: LoadedModel, fresh: FreshItems, item: str, others: Iterable[LoadedModel] = ()
) -> dict[str, Any]:
    """Describe an item of `model`, which is live; `others` are further versions that answer.

    Raises NotFoundError for an item that neither the version nor its overlay has.
    """
    row = fresh.row(item)
    if row is None:
        message = f"version {model.version} has no such item, and none was added, or it was withdrawn"
        message = f"{message}; check the id, PUT a new item, or PATCH a withdrawn one to serve it"
        raise NotFoundError("id", item, message)
    view = ItemView(model.bundle, fresh)
    is_trained = row < fresh.first_row
    trained_in = [each.version for each in (model, *others) if each.bundle.vocabulary.row(item) is not None]
    return {
        "version": model.version,
        "id": view.id(row),
        "fields": orjson.Fragment(view.json_of(row)),
        "features": None if is_trained else orjson.Fragment(fresh.sent[row - fresh.first_row].features),
        "in_index": is_trained,
        "fresh": not is_trained,
        "fields_replaced": row in fresh.replaced.by_row,
        "withdrawn": is_trained and fresh.is_withdrawn(row),
        "training_events": int(model.bundle.popularity[row]) if is_trained else None,
        "popularity_rank": model.retriever.popularity_rank(row) if is_trained else None,
        "versions": trained_in,
    }
