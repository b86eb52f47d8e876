"""Delimited text of any delimiter as a lazy table of texts.

polars neither counts malformed records nor names their lines. So lines with a wrong number of fields are left
out of a copy; a file whose malformed lines have quotes, which may enclose several lines, goes through `csv`.
"""

import csv
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import polars as pl

from turret.data.errors import SourceError
from turret.data.reading.schema import FileFormat
from turret.data.reading.tables import EXAMPLES, ROW, Malformed, Table, encoding_sentence, readable
from turret.data.reading.unpacking import new_file

if TYPE_CHECKING:
    import _csv

_DELIMITERS = (",", "\t", ";", "|")
_WAY_OUT = "--quote '' takes quotes as text"


@dataclass(frozen=True)
class _Header:
    """The names and the form of a file; `lines` are those before the first record.

    `is_spaced`: a blank follows each delimiter, and belongs to no value.
    """

    columns: list[str]
    delimiter: str
    lines: int
    is_spaced: bool

    def is_plain(self, has_header: bool) -> bool:
        """Tell whether polars can read the form."""
        return len(self.delimiter.encode()) == 1 and not self.is_spaced and self.lines == has_header


def scan_delimited(content: Path, path: Path, settings: FileFormat, work: Path) -> Table:
    """Scan the file `content` of UTF-8; every value is text and an empty one is null.

    polars reads regular files in place: a one-character delimiter, every record on one line with the
    right number of fields. Other files are first rewritten into the folder `work` without their malformed
    records. `path` is the name for messages. Raises SourceError when the file is empty or not UTF-8.
    """
    header = _read_header(content, path, settings)
    columns, delimiter, has_header = header.columns, header.delimiter, settings.has_header
    malformed: Malformed | None = None
    if header.is_plain(has_header):
        lines = _lines(content, settings, header)
        malformed = _malformed_lines(lines, path, settings, header)
        if malformed == Malformed():
            frame = _scan(content, settings, columns, delimiter)
            return Table(frame, path, is_text=True, files=(path,), has_header=has_header)
    rewritten = new_file(work, "csv")
    with readable(path):
        if malformed is None:
            malformed = _rewrite(content, rewritten, settings, header)
            form, delimiter = FileFormat(), ","
        else:
            _copy_records(lines.filter(pl.col(ROW) > header.lines), rewritten, delimiter)
            form = settings.model_copy(update={"has_header": False})
    frame = _scan(rewritten, form, [ROW, *columns], delimiter)
    return Table(frame, path, is_text=True, malformed=malformed, files=(path,), has_header=has_header)


def _open(content: Path) -> TextIO:
    # utf-8-sig: a byte order mark does not belong to the first column's name.
    return content.open(encoding="utf-8-sig", newline="")


def _read_header(content: Path, path: Path, settings: FileFormat) -> _Header:
    with readable(path), _open(content) as stream:
        first = stream.readline()
        # Excel names the delimiter in a line of its own.
        stated = re.fullmatch(r"(?i)sep=(.)", first.rstrip("\r\n"))
        lines = 1 if stated else 0
        if stated:
            first = stream.readline()
        if "\0" in first:
            raise SourceError(encoding_sentence(path, "utf-8"))
        delimiter = stated[1] if stated else max(_DELIMITERS, key=first.count)
        if settings.delimiter in first:  # else it is that of another file
            delimiter = settings.delimiter or delimiter
        is_spaced = delimiter != " " and 0 < first.count(delimiter) == first.count(f"{delimiter} ")
        stream.seek(0)
        records = _Records(stream, settings, delimiter, is_spaced)
        for _ in range(lines):
            next(records.lines)
        names = records.read(None)
        lines = records.lines.number if settings.has_header else lines
    if isinstance(names, str):
        row = ", and --no-header is for a first line that is a row" if settings.has_header else ""
        raise SourceError(f"line {records.lines.number} of {path} has {names}{row}")
    if names is None or not any(names):
        raise SourceError(f"{path} is empty or starts with an empty line; a header line is expected")
    if not settings.has_header:
        names = [f"column_{number}" for number in range(1, len(names) + 1)]
    return _Header(_distinct([name.strip() for name in names]), delimiter, lines, is_spaced)


def _distinct(names: list[str]) -> list[str]:
    """Column names, with the number of the column behind each that a header has several times.

    Such a header stops nobody who does not need these columns, and under neither name one is taken silently.
    """
    return [
        f"{name} (column {number})".strip() if names.count(name) > 1 else name
        for number, name in enumerate(names, 1)
    ]


class _Lines:
    """The lines of a stream, and `number`, that of the last one; lines can be given back."""

    def __init__(self, stream: TextIO) -> None:
        self.number = 0
        self.taken: list[str] = []
        self._stream = stream
        self._again: deque[str] = deque()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._stream)
        self.number += 1
        self.taken.append(line)
        return line

    def give_back(self, kept: int = 0) -> None:
        """Give back the lines taken, all but the first `kept`."""
        self._again.extendleft(reversed(self.taken[kept:]))
        self.number -= len(self.taken[kept:])
        del self.taken[kept:]


class _Records:
    """The records of delimited text; a quote in a field is doubled, or stands behind a backslash."""

    def __init__(self, stream: TextIO, settings: FileFormat, delimiter: str, is_spaced: bool) -> None:
        self.lines = _Lines(stream)
        self._escape = "\\" + settings.quote if settings.quote else None
        lines: Iterator[str] = self.lines
        if len(delimiter) > 1:  # csv takes one-character delimiters only
            lines, delimiter = _replaced(lines, delimiter, "\x1f"), "\x1f"
        if not settings.quote:
            self._doubled = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
            return
        self._doubled, self._escaped = (
            csv.reader(
                source, delimiter=delimiter, quotechar=settings.quote, strict=True, skipinitialspace=is_spaced
            )
            for source in (lines, _replaced(lines, f"\\{settings.quote}", 2 * settings.quote))
        )

    def read(self, width: int | None) -> list[str] | str | None:
        """Return the next record of `width` fields (None: of any), the problem of a line, or None at the end.

        Lines after one with a problem are read anew: its quote may have enclosed them.
        """
        self.lines.taken.clear()
        record = _next(self._doubled, width)
        if isinstance(record, str):
            if self._escape and any(self._escape in line for line in self.lines.taken):
                self.lines.give_back()
                escaped = _next(self._escaped, width)
                if isinstance(escaped, list):
                    return escaped
            self.lines.give_back(1)
        return record


def _replaced(lines: Iterator[str], text: str, other: str) -> Iterator[str]:
    # Unlike a generator, a map goes on after the end: lines may be given back.
    return map(lambda line: line.replace(text, other), lines)  # noqa: C417


def _next(records: "_csv.Reader", width: int | None) -> list[str] | str | None:
    try:
        record = next(records, None)
    except csv.Error as error:
        is_open = "unexpected end" in str(error) or "limit" in str(error)
        return f"{'an unclosed quote' if is_open else 'a quote inside a field'}; {_WAY_OUT}"
    if record and width is not None and len(record) != width:
        return f"{len(record)} of {width} fields"
    return record


def _lines(content: Path, settings: FileFormat, header: _Header) -> pl.LazyFrame:
    """Each line that isn't blank, its number, and whether it `is_record` of the right number of fields."""
    line, delimiter, width = pl.col("line"), header.delimiter, len(header.columns)
    is_record = line.str.count_matches(delimiter, literal=True) == width - 1
    if settings.quote:
        is_quoted = line.str.contains(settings.quote, literal=True)
        is_quoted_record = line.str.contains(_record(settings.quote, delimiter, width))
        is_record = pl.when(is_quoted).then(is_quoted_record).otherwise(is_record)
    lines = pl.scan_lines(content, glob=False, row_index_name=ROW, row_index_offset=1)
    return lines.filter(line.str.strip_chars() != "").with_columns(is_record=is_record)


def _malformed_lines(
    lines: pl.LazyFrame, path: Path, settings: FileFormat, header: _Header
) -> Malformed | None:
    """Count the lines that are no records, in one pass.

    None if lines of polars are not those of the file: the header is none (of a file with other line ends), or
    one has a quote, which may begin a record.
    """
    fields = pl.col("line").str.count_matches(header.delimiter, literal=True) + 1
    has_quote = pl.col("line").str.contains(settings.quote, literal=True) if settings.quote else pl.lit(False)
    malformed = lines.filter(~pl.col("is_record")).select(ROW, fields=fields, has_quote=has_quote)
    with readable(path):
        found = malformed.collect(engine="streaming")
    if found["has_quote"].any() or (found[ROW] <= header.lines).any():
        return None
    width, first = len(header.columns), found.head(EXAMPLES)
    examples = [{"row": row, "problem": f"{count} of {width} fields"} for row, count, _ in first.rows()]
    return Malformed(len(found), tuple(examples))


def _copy_records(lines: pl.LazyFrame, target: Path, delimiter: str) -> None:
    """Write the records of a file, each behind the number of its line."""
    line = pl.col("line").str.strip_prefix("\ufeff")
    records = lines.filter("is_record").select(pl.concat_str(pl.col(ROW), line, separator=delimiter))
    records.sink_csv(target, include_header=False, quote_style="never", separator="\x1f")


def _record(quote: str, delimiter: str, width: int) -> str:
    """Return the regular expression of a record whose quotes enclose whole fields (doubled inside)."""
    quote, delimiter = re.escape(quote), re.escape(delimiter)
    field = f"(?:{quote}(?:[^{quote}]|{quote}{quote})*{quote}|[^{quote}{delimiter}]*)"
    return f"^{field}(?:{delimiter}{field}){{{width - 1}}}$"


def _scan(path: Path, settings: FileFormat, columns: list[str], delimiter: str) -> pl.LazyFrame:
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


def _rewrite(content: Path, target: Path, settings: FileFormat, header: _Header) -> Malformed:
    """Copy the records of a file as plain CSV with line numbers, and count the malformed ones."""
    count, width = 0, len(header.columns)
    examples: list[dict[str, Any]] = []
    with _open(content) as source, target.open("w", encoding="utf-8", newline="") as copy:
        records = _Records(source, settings, header.delimiter, header.is_spaced)
        for _ in range(header.lines):
            next(records.lines)
        writer = csv.writer(copy, lineterminator="\n")
        writer.writerow([ROW, *header.columns])
        while (record := records.read(width)) is not None:
            if isinstance(record, str):
                count += 1
                examples = [*examples, {"row": records.lines.number, "problem": record}][:EXAMPLES]
            elif record:
                writer.writerow([records.lines.number, *record])
    return Malformed(count, tuple(examples))
