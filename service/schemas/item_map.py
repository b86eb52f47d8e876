"""The answers of the calls about the map of the item vectors."""

from typing import Any, Literal

from pydantic import BaseModel

from turret.tower.catalog.columns import Kind


class MapAnswer(BaseModel):
    """The map of a version: the method that projected the item vectors, and the number of its points."""

    version: str
    method: Literal["pca", "umap"]
    items: int


class ColourGroup(BaseModel):
    """A group of items, and their number."""

    label: str
    items: int


class ColoursAnswer(BaseModel):
    """Up to 10 groups of items by a field.

    `codes` is base64 of one byte a point, in the order of the points: the number of its group, 255 for none.
    """

    version: str
    field: str
    kind: Kind
    groups: list[ColourGroup]
    codes: str


class MapItem(BaseModel):
    """An item and the number of its point, from 0; null for an item that was added since the export."""

    point: int | None
    id: int | str
    fields: dict[str, Any]


class MapItemsAnswer(BaseModel):
    """The items of some points, or the points of some items, in the order of the request."""

    version: str
    items: list[MapItem]
