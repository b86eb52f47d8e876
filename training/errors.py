"""Errors of training: each message is a sentence with the cause, its location and a remedy."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from turret.data.errors import TurretError


class TrainingError(TurretError):
    """An experiment, a run or an export is invalid."""


class DivergenceError(TrainingError):
    """The loss is NaN or infinite because of the settings."""


@contextmanager
def naming_damage(place: Path | str, remedy: str, *others: type[Exception]) -> Iterator[None]:
    """Raise TrainingError, with the remedy, for a file that holds something else; a missing file stays.

    `others` are errors of the file's reader, beside those of content that is no JSON or lacks a key.
    """
    damage: tuple[type[Exception], ...] = (ValueError, KeyError, TypeError, *others)
    try:
        yield
    except damage as error:
        raise TrainingError(f"{place}: it can't be read ({error!r}); {remedy}.") from None
