"""The log of activations and refusals, a line each: `<bundles>/activations.jsonl`. It is for people.

A service reads it once, at its start, for the versions that were live before.
"""

import logging
import os
from contextlib import suppress
from itertools import islice
from pathlib import Path

from pydantic import ValidationError

from turret.data.files.staging import sync
from turret.service.versions.record import Activation
from turret.tower.format.safe_open import no_link

FILE_NAME = "activations.jsonl"
_TAIL = 1_000_000  # bytes that are read, some thousand activations
_LONGEST_LINE = 64_000  # bytes; a line has some hundreds
_log = logging.getLogger("turret.activation")


def latest(root: Path, most: int | None = None) -> list[Activation]:
    """The latest activations and refusals, newest first, from the last megabyte of the file.

    Any author of models can write the file: lines that are none of ours are left out.
    """
    with suppress(OSError), open(root / FILE_NAME, "rb", opener=no_link) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
        lines = file.read(_TAIL).splitlines()
        read = (_parsed(line) for line in reversed(lines) if len(line) < _LONGEST_LINE)
        return list(islice((line for line in read if line is not None), most))
    return []


def activations(root: Path) -> list[Activation]:
    """The latest activations with their numbers, newest first, each version once."""
    newest: dict[str, Activation] = {}
    for line in latest(root):
        if line.outcome == "activated" and line.number:
            newest.setdefault(line.version, line)
    return sorted(newest.values(), key=lambda line: line.number or 0, reverse=True)


def add(root: Path, line: Activation) -> None:
    """Append a line, unless the folder can't be written, which is logged."""
    path = root / FILE_NAME
    try:
        with open(path, "ab+", buffering=0, opener=no_link) as file:
            size = os.fstat(file.fileno()).st_size
            is_torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"  # by a crash
            file.write(b"\n" * is_torn + line.model_dump_json(exclude_defaults=True).encode() + b"\n")
            os.fsync(file.fileno())
        sync(path.parent)
    except OSError as error:
        _log.warning(
            "%s can't be written (%s), so it lacks a line: version %s %s",
            path,
            error.strerror,
            line.version,
            line.outcome,
        )


def _parsed(line: bytes) -> Activation | None:
    try:
        return Activation.model_validate_json(line)
    except ValidationError:
        return None
