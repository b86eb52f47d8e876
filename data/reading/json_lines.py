"""JSON as a lazy table: one object a line, an array, or objects over several lines.

polars fails at the first broken line without its number, so files that have any are checked by `json` once.
Broken lines are counted and dropped.
"""

import ast
import codecs
import glob
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import polars as pl

from turret.data.errors import SourceError, TextEncodingError
from turret.data.reading.encodings import encoding_sentence
from turret.data.reading.source_settings import FileFormat
from turret.data.reading.tables import ROW, Malformed, Table, readable, refuse_columns
from turret.data.reading.unpacking import new_file

_CHUNK, _LONGEST = 1 << 20, 1 << 26  # characters that are read at a time, and that one object may have
_BETWEEN = re.compile(r"[\s,\[\]]*")


def scan_json_lines(content: Path, path: Path, settings: FileFormat, work: Path) -> Table:
    """Scan the file `content` of JSON objects; `path` is the name for messages.

    A file of one object a line without broken lines is read in place. Any other file is copied into the
    folder `work`, with an object a line, and empty objects for broken and blank lines. Where a column mixes
    types, all values are texts, as in CSV; lists and objects are JSON. Raises SourceError when the file has
    no object.
    """
    with suppress(pl.exceptions.PolarsError):
        if not _holds_values(content):
            return _table(_scan(content), path, False, Malformed())
    repaired = new_file(work, "jsonl")
    dropped, malformed = ([], Malformed()) if _spread(content, repaired) else _repair(content, path, repaired)
    is_text = False
    try:
        frame = _scan(repaired)
    except pl.exceptions.PolarsError:  # a column has values that no type holds, such as 1 and ["a"]
        is_text = True
        with repaired.open(encoding="utf-8") as lines:
            names = dict.fromkeys(name for line in lines for name in json.loads(line))
        with readable(path):
            frame = _scan(repaired, dict.fromkeys(names, pl.String()))
    frame = frame.filter(~pl.col(ROW).is_in(dropped))
    return _table(frame, path, is_text, malformed)


def _table(frame: pl.LazyFrame, path: Path, is_text: bool, malformed: Malformed) -> Table:
    table = Table(frame, path, is_text, malformed, (path,))
    refuse_columns(table.columns, path)
    return table


def _holds_values(path: Path) -> bool:
    """Tell whether any line is not an object, which polars detects only when it reads the values."""
    line = pl.col("line").str.strip_chars()
    values = pl.scan_lines(path, glob=False).filter((line != "") & ~line.str.starts_with("{"))
    return not values.head(1).collect(engine="streaming").is_empty()


def _scan(path: Path, schema: dict[str, pl.DataType] | None = None) -> pl.LazyFrame:
    pattern = glob.escape(str(path))
    if schema is None:  # types are inferred once, and from all lines, as texts may follow numbers
        schema = dict(pl.scan_ndjson(pattern, infer_schema_length=None).collect_schema())
    return pl.scan_ndjson(pattern, schema=schema, row_index_name=ROW, row_index_offset=1)


def _spread(path: Path, target: Path) -> bool:
    """Copy the objects of an array, or objects that span lines, one a line; False for another file."""
    with path.open("rb") as lines:
        first = next((line for line in lines if line.removeprefix(codecs.BOM_UTF8).strip()), b"")
    first = first.removeprefix(codecs.BOM_UTF8).lstrip()
    if not first.startswith((b"[", b"{")) or not isinstance(_object(first), str):
        return False
    try:
        with path.open(encoding="utf-8-sig") as source, target.open("w", encoding="utf-8") as copy:
            copy.writelines(map(_line, _values(source)))
    except UnicodeDecodeError:
        if first.startswith(b"[") or first.decode(errors="ignore").encode() == first:
            raise TextEncodingError(encoding_sentence(path, "utf-8")) from None
        return False  # a file of an object a line, whose first object is broken
    except (ValueError, RecursionError):
        return False
    return target.stat().st_size > 0


def _values(source: TextIO) -> Iterator[dict[str, Any]]:
    """Yield objects beside each other or in an array. Raises ValueError for anything else."""
    decoder = json.JSONDecoder(parse_constant=lambda _: None)
    buffer = ""
    while len(buffer) <= _LONGEST and (more := source.read(max(_CHUNK, len(buffer)))):
        buffer, position = buffer + more, 0
        with suppress(json.JSONDecodeError):  # the object at the end may be incomplete
            while between := _BETWEEN.match(buffer, position):
                value, position = decoder.raw_decode(buffer, between.end())
                if not isinstance(value, dict):
                    raise ValueError("not a JSON object")
                yield value
        buffer = buffer[position:]
    if _BETWEEN.fullmatch(buffer) is None:
        raise ValueError("not JSON")


def _repair(content: Path, path: Path, repaired: Path) -> tuple[list[int], Malformed]:
    """Copy the objects; return the numbers of all other lines, and the broken lines."""
    dropped, malformed, number = list[int](), Malformed(), 0
    with content.open("rb") as source, repaired.open("w", encoding="utf-8") as copy:
        for number, line in enumerate(source, 1):
            line = line.removeprefix(codecs.BOM_UTF8).strip()
            value = _object(line) if line else None
            if isinstance(value, str):
                malformed = malformed.and_line(number, value)
            if not isinstance(value, dict):
                dropped.append(number)
            copy.write(_line(value if isinstance(value, dict) else {}))
    if len(dropped) == number:
        first = "".join(f" (line {line['row']}: {line['problem']})" for line in malformed.examples[:1])
        raise SourceError(
            f"{path} holds no JSON object{first}; one object a line or an array of objects can be read, "
            "another format with --format"
        )
    return dropped, malformed


def _object(line: bytes) -> dict[str, Any] | str:
    """Return the object of a line, or the reason why there is none.

    An object may have the form in which Python prints it. NaN and Infinity, which Python prints for missing
    numbers, become null.
    """
    value, problem = None, "not a JSON object"
    try:
        text = line.decode()
        value = json.loads(text, parse_constant=lambda _: None)
    except json.JSONDecodeError as error:
        problem = f"{error.msg.removesuffix(' at')} at character {error.colno}"
        with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            value = ast.literal_eval(text)
    except RecursionError:
        problem = "nested too deeply"
    except UnicodeDecodeError as error:
        problem = f"byte {error.start + 1} is no UTF-8"
    except ValueError as error:  # a number of thousands of digits
        problem = str(error)
    return value if isinstance(value, dict) else problem


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, allow_nan=False) + "\n"
