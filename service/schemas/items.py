"""The bodies of the calls that put and withdraw items."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from turret.service.schemas.fields import Features
from turret.service.schemas.requests import Body


class ItemBody(Body):
    """An item: the features that its vector is computed from, and the fields of answers and filters.

    `features` maps names to raw values, as in the prepared data; a missing one is unknown. `fields` are the
    features by default.
    """

    features: Features
    fields: dict[str, Any] | None = Field(default=None, max_length=100)


class ItemPutAnswer(BaseModel):
    """The stored item: its vector is computed from the features, or comes from training.

    `replicas_behind` names the other replicas of the service whose answers may lack the change for a moment.
    """

    version: str
    id: int | str
    vector: Literal["features", "training"]
    replicas_behind: tuple[str, ...] | None = None


class ItemWithdrawnAnswer(BaseModel):
    """The item is in no answer of any version from now on, until it is put again; see ItemPutAnswer."""

    version: str
    id: int | str
    withdrawn: Literal[True] = True
    replicas_behind: tuple[str, ...] | None = None
