"""An item as a version and its overlay know it."""

from collections.abc import Iterable
from typing import Any

import orjson

from turret.service.errors import NotFoundError
from turret.service.overlay.fresh import FreshItems
from turret.service.ranking.item_view import ItemView
from turret.service.versions.loaded_model import LoadedModel

_UNKNOWN = "version {version} has no such item, and none was added; check the id"
_WITHDRAWN = "this item was withdrawn, and version {version} has no such item; put it again to serve it"


def item_status(
    model: LoadedModel, fresh: FreshItems, item: str, others: Iterable[LoadedModel] = ()
) -> dict[str, Any]:
    """Describe an item of `model`, which is live; `others` are further versions that answer.

    Raises NotFoundError for an item that neither the version nor its overlay has.
    """
    row = fresh.row(item)
    if row is None:
        message = _WITHDRAWN if item in fresh.withdrawn_ids else _UNKNOWN
        raise NotFoundError("id", item, message.format(version=model.version))
    view = ItemView(model.bundle, fresh)
    is_trained = row < fresh.first_row
    features = fresh.features_of(row)
    trained_in = [one.version for one in (model, *others) if one.bundle.vocabulary.row(item) is not None]
    return {
        "version": model.version,
        "id": view.id(row),
        "fields": orjson.Fragment(view.json_of(row)),
        "features": None if features is None else orjson.Fragment(features),
        "in_index": is_trained,
        "fresh": not is_trained,
        "fields_replaced": row in fresh.replaced,
        "withdrawn": is_trained and row in fresh.withdrawn,
        "training_events": int(model.bundle.popularity[row]) if is_trained else None,
        "popularity_rank": model.retriever.popularity_rank(row) if is_trained else None,
        "versions": trained_in,
    }
