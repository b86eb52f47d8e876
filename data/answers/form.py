"""The form of the answer log: ids of answers, visitors under a key, and the file of each minute.

A row is an answer; `data.answers.log` has the columns with their types:

- `answer_id`: 32 hexadecimal digits; the first 12 are the milliseconds since 1970, so ids sort by time.
- `time` (UTC, in milliseconds), `call` (recommend, similar, search or popular), `version`, and `route`
  (live or canary).
- `visitor`: the user under a key (`visitor_of`), empty where the request names no user.
- `items`, `places` (from 1), `scores`, `sources` and `propensities`: one entry an item. A propensity is the
  exact probability that the item is shown at its place, over all draws that the answer to this request may
  have; 1 where nothing is drawn. It does not depend on the items that were drawn at other places: the value
  of another version is a sum over the places, each with its own probability (item-position model).
- `context`: a JSON object of the request's fields that the operator names; `rules`: the rules that applied.

The log is a folder `DIR/YYYY-MM-DD/HHMM_WORKER.parquet`: each file has the answers of one minute of UTC, and
is complete when it appears under this name. This module loads no Polars, as the service writes the log.
"""

import os
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path

from turret.data.errors import ConfigurationError, EmptyDataError, SourceError

LIVE, CANARY = ROUTES = ("live", "canary")
MINUTE = 60_000  # milliseconds
LONGEST_KEY = 64  # bytes: the longest key of BLAKE2b


def answer_id_of(time: int, rest: bytes) -> str:
    """Return the id of an answer at `time`, in milliseconds since 1970; `rest` are ten bytes of its own."""
    return f"{time:012x}{rest.hex():0>20}"


def time_of(answer_id: str) -> int:
    """Return the time of an answer, in milliseconds since 1970. Raises ValueError for another text."""
    return int(answer_id[:12], 16)


def visitor_of(user: str, key: bytes) -> str:
    """Return the name of a user in the log: the BLAKE2b hash of the id as text under `key`, 32 hex digits.

    Without the key, the log neither names the user of an answer nor tells the answers of a user.
    """
    return blake2b(user.encode("utf-8", "surrogatepass"), key=key, digest_size=16).hexdigest()


def read_key(place: str) -> bytes:
    """Read the key of visitors from a file, or from the environment variable of this name.

    Raises ConfigurationError where neither exists, and for a key that is empty or has more than LONGEST_KEY
    bytes. Blanks at the ends do not count.
    """
    path = Path(place)
    if path.is_file():
        key = path.read_bytes().strip()
    elif (text := os.environ.get(place)) is not None:
        key = text.strip().encode()
    else:
        raise ConfigurationError(
            f"--key {place}: there is no such file and no such environment variable; name the key that the "
            "service hashes users with"
        )
    if not 0 < len(key) <= LONGEST_KEY:
        raise ConfigurationError(
            f"--key {place}: a key has 1 to {LONGEST_KEY} bytes, and this one has {len(key)}"
        )
    return key


def minute_file(folder: Path, time: int, worker: str) -> Path:
    """Return the file of the answers of a worker in the minute of `time`, in milliseconds since 1970."""
    minute = datetime.fromtimestamp(time // MINUTE * 60, UTC)
    return folder / f"{minute:%Y-%m-%d}" / f"{minute:%H%M}_{worker}.parquet"


def minute_of(path: Path) -> int | None:
    """Return the minute of a file of the log, in milliseconds since 1970; None for a file of another name."""
    if path.suffix != ".parquet":
        return None
    try:
        minute = datetime.strptime(f"{path.parent.name} {path.name[:5]}", "%Y-%m-%d %H%M_")
    except ValueError:
        return None
    return int(minute.replace(tzinfo=UTC).timestamp()) * 1_000


def files_of(folder: Path, first: int | None = None, last: int | None = None) -> list[Path]:
    """Return the files with answers of first <= time < last, in milliseconds since 1970, by minute.

    An answer is written into the minute of its time, or into a neighbour if the clock was set. Files that are
    not complete have another name. Raises SourceError for no folder, and EmptyDataError for one without
    files of this time.
    """
    if not folder.is_dir():
        raise SourceError(f"{folder} is no folder; name the folder of the service's answer log")
    minutes = {path: minute_of(path) for path in sorted(folder.glob("*/*.parquet"))}
    chosen = [
        path
        for path, minute in minutes.items()
        if minute is not None
        and (first is None or minute > first - 2 * MINUTE)
        and (last is None or minute < last + MINUTE)
    ]
    if not chosen:
        there = f"{len(minutes):,} files of Parquet, none of this time" if minutes else "no file of the log"
        raise EmptyDataError(
            f"{folder} has no answers ({there}); the log is a folder like 2026-05-01 with files like "
            "1230_0.parquet, or name another time"
        )
    return chosen
