"""Errors of towers and bundles. A message says what is wrong, where, and what would work."""

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from turret.data.errors import TurretError

MOST_OTHERS = 20
"""The `others` of an error cover at most this many further fields."""


class _OfField(Protocol):
    field: str
    others: tuple[Any, ...]


Fault = TypeVar("Fault", bound=_OfField)


def first_with_others(errors: Iterable[Fault]) -> Fault:
    """Return the first of one or more errors, with the errors of further fields as its `others`.

    Only the first error of a field counts. No more errors are read than are needed.
    """
    fields: dict[str, Fault] = {}
    for error in errors:
        fields.setdefault(error.field, error)
        if len(fields) > MOST_OTHERS:
            break
    first, *others = fields.values()
    first.others = tuple(others)
    return first


class TowerError(TurretError):
    """A tower's settings or inputs that can't be used as they are."""


class BundleError(TowerError):
    """A bundle, or a folder of bundles, that can't be published, opened or trusted as it is.

    `reason` is the label in metrics, and names the failed check of the gate: "unknown" (there is no such file
    or version), "checksum" (a file is not the one that was published), "golden" (answers differ from the
    recorded ones), "recall" (an index misses the requested recall), or else "soundness".
    """

    def __init__(self, message: str, reason: str = "soundness") -> None:
        super().__init__(message)
        self.reason = reason


class FilterError(TowerError):
    """A filter that doesn't fit the catalog.

    `field` is the path in the filter, such as "genres.any_of", `value` its content. `others`: errors of
    further fields of the filter.
    """

    others: "tuple[FilterError, ...]" = ()
    __str__ = Exception.__str__

    def __init__(self, field: str, value: object, message: str) -> None:
        super().__init__(message)
        self.field = field
        self.value = value


class EncodingError(TowerError):
    """A query's features that the user tower can't read.

    `position` is the index of the query in the batch, `field` the path of the feature, `value` its content.
    `others`: errors of further features of the query.
    """

    others: "tuple[EncodingError, ...]" = ()
    __str__ = Exception.__str__

    def __init__(self, position: int, field: str, value: object, message: str) -> None:
        super().__init__(message)
        self.position = position
        self.field = field
        self.value = value


class EngineError(TowerError):
    """A vector engine that can't be reached, doesn't answer in time, or refuses."""
