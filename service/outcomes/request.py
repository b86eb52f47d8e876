"""The request and the report of a count of outcomes; neither needs pyarrow."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel


class CountRequest(BaseModel):
    """An answer log, its store and its key as hex, and the parameters; `within` is in ms.

    `bundles` are the versions with the values of items, and `report` is the file of the report, which is not
    counted again while it is at most `fresh_ms` old.
    """

    answers: Path
    store: str
    key: str
    kinds: tuple[str, ...]
    within: int
    value: str | None
    bundles: tuple[Path, ...]
    report: Path
    fresh_ms: int


class CountReport(BaseModel):
    """The outcomes at `time`, in ms since 1970, or the reason why they can't be counted.

    `field` is the parameter at fault, if it is one.
    """

    time: int
    outcomes: dict[str, Any] | None = None
    error: str | None = None
    field: str | None = None


def read_report(path: Path) -> CountReport | None:
    """Read a report; None for one that does not exist."""
    try:
        return CountReport.model_validate_json(path.read_bytes())
    except (OSError, ValueError):
        return None
