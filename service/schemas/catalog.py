"""The answers of the calls about the catalog."""

from typing import Any

from pydantic import BaseModel

from turret.tower.catalog.columns import Kind


class FoundItem(BaseModel):
    """An item with its fields; `training_events` is null for an item added since the version was made.

    `withdrawn` is there for a withdrawn item alone: no answer has it, but histories with it still count it.
    """

    id: int | str
    fields: dict[str, Any]
    training_events: int | None
    withdrawn: bool = False


class FoundItemsAnswer(BaseModel):
    """Items of one version; `cursor` requests the next page, if there is one."""

    version: str
    items: list[FoundItem]
    cursor: str | None = None


class FieldValue(BaseModel):
    """A value of a field, and the number of items that have it."""

    value: str
    items: int


class FieldSummary(BaseModel):
    """A field of the catalog.

    `missing`: the number of items without a value. `minimum` and `maximum`: of numbers. `values`: the most
    frequent texts, up to 100, of a field whose values are shared by items.
    """

    name: str
    kind: Kind
    missing: int
    minimum: float | None = None
    maximum: float | None = None
    values: list[FieldValue] | None = None


class FieldsAnswer(BaseModel):
    """The fields of a version; `title` names the one that names an item, `picture` the one with pictures."""

    version: str
    title: str | None
    picture: str | None
    fields: list[FieldSummary]
