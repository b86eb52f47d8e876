"""JSON lines as a lazy table; broken lines are counted and dropped.

polars fails at the first broken line without its number, so files that have any are checked by `json` once.
"""

import glob
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl

from turret.data.errors import SourceError
from turret.data.reading.schema import FormatSettings
from turret.data.reading.tables import EXAMPLES, ROW, Malformed, Table, readable

_EMPTY = b"{}\n"


def scan_json_lines(path: Path, settings: FormatSettings, work: Path) -> Table:
    """Scan a file of one JSON object a line.

    A file without broken lines is read in place; any other is copied into the folder `work` with empty
    objects for broken and blank lines. Raises SourceError when no line is an object.
    """
    with suppress(pl.exceptions.PolarsError):
        if not _holds_values(path):
            return Table(_scan(path), path, is_text=False)
    repaired = work / f"{path.name}.{len(list(work.iterdir()))}.jsonl"
    dropped, malformed = _repair(path, repaired)
    try:
        frame = _scan(repaired)
    except pl.exceptions.PolarsError:  # a column has values that no type holds, such as 1 and ["a"]
        texts = repaired.with_suffix(".texts.jsonl")
        _write_texts(repaired, texts)
        with readable(path):
            frame = _scan(texts)
    return Table(frame.filter(~pl.col(ROW).is_in(dropped)), path, is_text=False, malformed=malformed)


def _holds_values(path: Path) -> bool:
    """Tell whether any line is not an object, which polars detects only when it reads the values."""
    line = pl.col("line").str.strip_chars()
    values = pl.scan_lines(path, glob=False).filter((line != "") & ~line.str.starts_with("{"))
    return not values.head(1).collect(engine="streaming").is_empty()


def _scan(path: Path) -> pl.LazyFrame:
    # Infer types from all lines: texts may follow numbers. The path is no pattern.
    frame = pl.scan_ndjson(
        glob.escape(str(path)), infer_schema_length=None, row_index_name=ROW, row_index_offset=1
    )
    frame.collect_schema()
    return frame


def _repair(path: Path, repaired: Path) -> tuple[list[int], Malformed]:
    """Copy the objects; return the numbers of all other lines, and the broken lines."""
    dropped: list[int] = []
    examples: list[dict[str, Any]] = []
    count = number = 0
    with path.open("rb") as source, repaired.open("wb") as copy:
        for number, line in enumerate(source, 1):
            line, problem = _checked(line) if line.strip() else (line, None)
            if problem is not None:
                count += 1
                examples = [*examples, {"row": number, "problem": problem}][:EXAMPLES]
            if problem is not None or not line.strip():
                dropped.append(number)
                line = _EMPTY
            copy.write(line)
    if len(dropped) == number:
        raise SourceError(f"{path} holds no JSON object; give its format with --format")
    return dropped, Malformed(count, tuple(examples))


def _write_texts(source: Path, target: Path) -> None:
    """Copy objects; columns that mix types have their values as texts, other than texts as JSON."""
    kinds: dict[str, set[str]] = {}
    with source.open(encoding="utf-8") as lines:
        for line in lines:
            for name, value in json.loads(line).items():
                kinds.setdefault(name, set()).add(_type(value))
    mixed = {name for name, found in kinds.items() if len(found - {"null"}) > 1}
    with source.open(encoding="utf-8") as lines, target.open("w", encoding="utf-8") as copy:
        for line in lines:
            values = json.loads(line)
            for name in mixed & values.keys():
                if values[name] is not None and not isinstance(values[name], str):
                    values[name] = json.dumps(values[name], ensure_ascii=False)
            copy.write(json.dumps(values, ensure_ascii=False) + "\n")


def _type(value: object) -> str:
    """The type of a JSON value; integers and other numbers are one, and so are lists of equal types."""
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"list of {', '.join(sorted({_type(part) for part in value} - {'null'}))}" if value else "null"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return "number" if is_number else type(value).__name__


def _checked(line: bytes) -> tuple[bytes, str | None]:
    """Return a line with null for NaN and Infinity, and the reason why it is not a JSON object, or None."""
    constants: list[str] = []  # of Python, which writes them where a number is missing; `append` returns None
    try:
        value = json.loads(line.decode().strip(), parse_constant=constants.append)
        if constants:
            line = json.dumps(value, ensure_ascii=False).encode() + b"\n"
    except json.JSONDecodeError as error:
        return line, f"{error.msg} at character {error.colno}"
    except ValueError as error:
        return line, str(error)
    except RecursionError:
        return line, "lists or objects in each other too deeply"
    return line, None if isinstance(value, dict) else "not a JSON object"
