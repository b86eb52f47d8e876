"""Delimited text of any delimiter and encoding as a lazy table of texts.

polars neither counts malformed records nor names their lines, so files that have any go through `csv` once.
"""

import codecs
import csv
import gzip
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import polars as pl

from turret.data.errors import SourceError
from turret.data.reading.schema import FormatSettings
from turret.data.reading.tables import EXAMPLES, ROW, Malformed, PlainText, Table, encoding_sentence, readable

if TYPE_CHECKING:
    import _csv

_DELIMITERS = (",", "\t", ";", "|")


def scan_delimited(path: Path, settings: FormatSettings, work: Path) -> Table:
    """Scan a CSV file; every value is text and an empty one is null.

    polars reads regular files in place: UTF-8, a one-character delimiter, every record on one line with the
    right number of fields. Other files are first rewritten into the folder `work` without their malformed
    records. Raises SourceError when the file is empty or not in the stated encoding.
    """
    original, path = path, _decompressed(path, work)
    columns, delimiter = _read_header(original, path, settings)
    if _is_plain(settings, delimiter) and _is_regular(original, path, settings, delimiter, len(columns)):
        plain = PlainText(path, tuple(columns), delimiter, settings.quote, settings.has_header)
        return Table(_scan(path, settings, columns, delimiter), original, is_text=True, plain=plain)
    rewritten = work / f"{original.name}.{len(list(work.iterdir()))}.csv"
    malformed = _rewrite(original, path, rewritten, settings, columns, delimiter)
    frame = _scan(rewritten, FormatSettings(), [ROW, *columns], ",")
    return Table(frame.with_columns(pl.col(ROW).cast(pl.Int64)), original, is_text=True, malformed=malformed)


def _decompressed(path: Path, work: Path) -> Path:
    if path.suffix.lower() != ".gz":
        return path
    target = work / f"{path.stem}.{len(list(work.iterdir()))}"
    try:
        with gzip.open(path) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy)
    except (OSError, EOFError) as error:
        raise SourceError(f"{path} can't be decompressed: {error}; fetch or export it again") from None
    return target


def _open(path: Path, encoding: str) -> TextIO:
    # utf-8-sig: a byte order mark does not belong to the first column's name.
    return path.open(encoding="utf-8-sig" if _is_utf8(encoding) else encoding, newline="")


def _is_utf8(encoding: str) -> bool:
    try:
        return codecs.lookup(encoding).name == "utf-8"
    except LookupError:
        raise SourceError(f"unknown encoding {encoding!r}; try utf-8, cp1252, latin-1 or utf-16") from None


def _read_header(original: Path, path: Path, settings: FormatSettings) -> tuple[list[str], str]:
    """Return the column names and the delimiter."""
    try:
        with _open(path, settings.encoding) as stream:
            first = stream.readline()
    except FileNotFoundError:
        raise SourceError(f"there is no file {original}; check the path") from None
    except UnicodeError:
        raise SourceError(encoding_sentence(original, settings.encoding)) from None
    delimiter = settings.delimiter or max(_DELIMITERS, key=first.count)
    names: list[str] = next(_records(iter([first]), settings, delimiter), [])
    if not any(names):
        raise SourceError(f"{original} is empty or starts with an empty line; a header line is expected")
    if not settings.has_header:
        names = [f"column_{number}" for number in range(1, len(names) + 1)]
    return _distinct(names), delimiter


def _distinct(names: list[str]) -> list[str]:
    """Column names, with the number of the column behind each that a header has several times.

    Such a header stops nobody who does not need these columns, and under neither name one is taken silently.
    """
    return [
        f"{name} (column {number})".strip() if names.count(name) > 1 else name
        for number, name in enumerate(names, 1)
    ]


def _records(lines: Iterator[str], settings: FormatSettings, delimiter: str) -> "_csv.Reader":
    if len(delimiter) > 1:  # csv takes one-character delimiters only
        long, delimiter = delimiter, "\x1f"
        lines = (line.replace(long, "\x1f") for line in lines)
    if not settings.quote:
        return csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    return csv.reader(lines, delimiter=delimiter, quotechar=settings.quote, strict=True)


def _is_plain(settings: FormatSettings, delimiter: str) -> bool:
    return _is_utf8(settings.encoding) and len(delimiter.encode()) == 1


def _is_regular(original: Path, path: Path, settings: FormatSettings, delimiter: str, width: int) -> bool:
    """Check that every line is blank or one record of `width` fields, in one pass."""
    line = pl.col("line")
    is_record = line.str.count_matches(delimiter, literal=True) == width - 1
    if settings.quote:
        is_quoted = line.str.contains(settings.quote, literal=True)
        is_quoted_record = line.str.contains(_record(settings.quote, delimiter, width))
        is_record = pl.when(is_quoted).then(is_quoted_record).otherwise(is_record)
    is_blank = line.str.strip_chars() == ""
    with readable(original):
        irregular = pl.scan_lines(path, glob=False).filter(~(is_record | is_blank)).head(1)
        return irregular.collect(engine="streaming").is_empty()


def _record(quote: str, delimiter: str, width: int) -> str:
    """Return the regular expression of a record whose quotes enclose whole fields (doubled inside)."""
    quote, delimiter = re.escape(quote), re.escape(delimiter)
    field = f"(?:{quote}(?:[^{quote}]|{quote}{quote})*{quote}|[^{quote}{delimiter}]*)"
    return f"^{field}(?:{delimiter}{field}){{{width - 1}}}$"


def _scan(path: Path, settings: FormatSettings, columns: list[str], delimiter: str) -> pl.LazyFrame:
    has_rows = ROW in columns
    frame = pl.scan_csv(
        path,
        glob=False,
        has_header=False,
        skip_lines=1 if settings.has_header else 0,
        schema=dict.fromkeys(columns, pl.String),
        separator=delimiter,
        quote_char=settings.quote or None,
        row_index_name=None if has_rows else ROW,
        row_index_offset=2 if settings.has_header else 1,
    )
    values = pl.all().exclude(ROW)
    return frame.filter(pl.any_horizontal(values.is_not_null())).with_columns(pl.col(ROW).cast(pl.Int64))


def _rewrite(
    original: Path, source: Path, target: Path, settings: FormatSettings, columns: list[str], delimiter: str
) -> Malformed:
    """Copy the records of `source` as plain CSV with line numbers, and count the malformed ones."""
    count = 0
    examples: list[dict[str, Any]] = []
    with target.open("w", encoding="utf-8", newline="") as copy:
        writer = csv.writer(copy, lineterminator="\n")
        writer.writerow([ROW, *columns])
        for line, record in _numbered(original, source, settings, delimiter):
            if isinstance(record, list) and len(record) == len(columns):
                writer.writerow([line, *record])
            elif record:
                count += 1
                problem = record if isinstance(record, str) else f"{len(record)} of {len(columns)} fields"
                examples.append({"row": line, "problem": problem})
                del examples[EXAMPLES:]
    return Malformed(count, tuple(examples))


def _numbered(
    original: Path, source: Path, settings: FormatSettings, delimiter: str
) -> Iterator[tuple[int, list[str] | str]]:
    """Yield the last line number of each record after the header, and its fields or its error."""
    try:
        with _open(source, settings.encoding) as stream:
            records = _records(stream, settings, delimiter)
            if settings.has_header:
                next(records)
            while (record := _next(original, records)) is not None:
                yield records.line_num, record
    except UnicodeError:
        raise SourceError(encoding_sentence(original, settings.encoding)) from None


def _next(original: Path, records: "_csv.Reader") -> list[str] | str | None:
    try:
        return next(records, None)
    except csv.Error as error:
        if "unexpected end" in str(error) or "limit" in str(error):
            raise SourceError(
                f"{original} has an unclosed quote (detected at line {records.line_num}); "
                "give the right quote with --quote, or none with --quote ''"
            ) from None
        return str(error)
