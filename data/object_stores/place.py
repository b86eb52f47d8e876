"""Places of files and folders: paths of this machine, and URLs of object stores."""

import re
from pathlib import Path
from typing import Annotated, TypeGuard

from pydantic import Field

_URL = r"^[A-Za-z][A-Za-z0-9+.-]+://.+$"

Url = Annotated[str, Field(pattern=_URL)]
"""Such as `s3://bucket/events.parquet`."""

Place = Url | Path


def is_url(place: str | Path) -> TypeGuard[str]:
    """Tell whether a place is a URL; a path is none."""
    return isinstance(place, str) and re.match(_URL, place) is not None
