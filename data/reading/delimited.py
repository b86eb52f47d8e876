"""Delimited text of any delimiter as a lazy table of texts.

polars neither counts malformed records nor names their lines. So lines with a wrong number of fields are left
out of a copy; a file whose malformed lines have quotes, which may enclose several lines, goes through `csv`.
"""

import csv
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import polars as pl

from turret.data.errors import SourceError
from turret.data.reading.encodings import encoding_sentence
from turret.data.reading.source_settings import FileFormat
from turret.data.reading.tables import (
    EXAMPLES,
    ROW,
    Malformed,
    Table,
    readable,
    refuse_columns,
)
from turret.data.reading.unpacking import new_file

if TYPE_CHECKING:
    import _csv

_DELIMITERS = (",", "\t", ";", "|")
_WAY_OUT = "--quote '' takes quotes as text"
_MARK = "\ufeff"  # the byte order mark
_UTF8 = "utf-8-sig"  # the mark does not belong to the first column's name
_UNIT = "\x1f"  # replaces a delimiter of several characters, as csv takes one character only
_HEADER = "the header again"
_LONGEST = 1 << 17  # characters of a record whose quotes enclose several lines


@dataclass(frozen=True)
class _Form:
    """The delimiter and the quote of a file, and the number of lines before its first record.

    `is_spaced`: a blank follows each delimiter, and belongs to no value. `header` is the pattern of lines
    that repeat the header, which concatenated files have.
    """

    delimiter: str
    quote: str
    is_spaced: bool
    skipped: int
    header: str = ""

    def records(self, stream: TextIO, width: int | None = None) -> Iterator[tuple[int, list[str] | str]]:
        """Yield a line number with a record of `width` fields (of any number for None), or with a problem.

        The number is that of the last line of a record. Lines after a line with a problem are read again, as
        the quote of that line may have enclosed them.
        """
        lines, number, again = islice(stream, self.skipped, None), self.skipped, deque[str]()
        while True:
            taken: list[str] = []
            record: list[str] | str = []
            is_open = True
            while is_open and (line := again.popleft() if again else next(lines, None)) is not None:
                taken.append(line)
                if len(taken) == 1 or self.quote in line:  # another line can't close the field
                    record, is_open = self._parse(taken, width)
                    is_open = is_open and sum(map(len, taken)) < _LONGEST
            if not taken:
                return
            if width is not None and self.header and re.search(self.header, taken[0].removeprefix(_MARK)):
                record = _HEADER
            if isinstance(record, str):
                again.extendleft(reversed(taken[1:]))
                del taken[1:]
            number += len(taken)
            yield number, record

    @cached_property
    def _dialect(self) -> "_csv.Dialect":
        return csv.reader(
            [],
            delimiter=self.delimiter if len(self.delimiter) == 1 else _UNIT,
            quotechar=self.quote or None,
            quoting=csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
            skipinitialspace=self.is_spaced,
            strict=True,
        ).dialect

    def _parse(self, lines: Sequence[str], width: int | None) -> tuple[list[str] | str, bool]:
        """Parse one record; return it, or its problem, and whether further lines may complete it.

        A quote in a field is doubled, or stands behind a backslash.
        """
        if not lines[0].strip() and len(lines) == 1:
            return [], False
        if not self.is_spaced and not (self.quote and self.quote in lines[0]):  # as csv does, but faster
            record = lines[0].rstrip("\r\n").split(self.delimiter)
            if width in (None, len(record)):
                return record, False
            return f"{len(record)} of {width} fields", False
        if len(self.delimiter) > 1:
            lines = [line.replace(self.delimiter, _UNIT) for line in lines]
        problem, is_open, escape = "", False, f"\\{self.quote}"
        for is_escaped in (False, True):
            if is_escaped:
                if not self.quote or not any(escape in line for line in lines):
                    break
                lines = [line.replace(escape, 2 * self.quote) for line in lines]
            try:
                record = next(csv.reader(lines, self._dialect), [])
            except csv.Error as error:
                is_open |= "unexpected end" in str(error)
                is_unclosed = re.search("unexpected end|limit", str(error))
                sentence = "an unclosed quote" if is_unclosed else "a quote inside a field"
                problem = problem or f"{sentence}; {_WAY_OUT}"
            else:
                if not record or width in (None, len(record)):
                    return record, False
                problem = problem or f"{len(record)} of {width} fields"
        return problem, is_open


_Records = tuple[Path, _Form, list[str], Malformed]
"""A file without malformed records: its path, form and columns, and the records that are left out."""


def scan_delimited(content: Path, path: Path, settings: FileFormat, work: Path) -> Table:
    """Scan the file `content` of UTF-8; every value is text and an empty one is null.

    polars reads regular files in place: a one-character delimiter, every record on one line with the
    right number of fields. Other files are first rewritten into the folder `work` without their malformed
    records. `path` is the name for messages. Raises SourceError when the file is empty or not UTF-8.
    """
    form, columns = _read_header(content, path, settings)
    with readable(path):
        records = None
        is_plain = form.delimiter.isascii() and form.quote.isascii() and len(form.delimiter) == 1
        if is_plain and not form.is_spaced and form.skipped == settings.has_header:
            records = _checked_lines(content, form, columns, work)
        file, form, columns, malformed = records or _rewritten(content, form, columns, work)
        frame = pl.scan_csv(
            file,
            glob=False,
            has_header=False,
            skip_lines=form.skipped,
            schema=dict.fromkeys(columns, pl.String),
            separator=form.delimiter,
            quote_char=form.quote or None,
            row_index_name=None if ROW in columns else ROW,
            row_index_offset=1 + form.skipped,
        )
    is_row = pl.any_horizontal(pl.all().exclude(ROW).is_not_null())
    frame = frame.filter(is_row).with_columns(pl.col(ROW).cast(pl.Int64))
    return Table(frame, path, is_text=True, malformed=malformed, files=(path,))


def _read_header(content: Path, path: Path, settings: FileFormat) -> tuple[_Form, list[str]]:
    """Return the form of a file, and its column names; repeated names have the column number behind them.

    Repeated names stop nobody who does not need these columns, and no such column is taken silently.
    """
    with readable(path), content.open(encoding=_UTF8, newline="") as stream:
        first = stream.readline()
        # Excel names the delimiter in a line of its own.
        stated = re.fullmatch(r"(?i)sep=(.)", first.rstrip("\r\n"))
        if stated:
            first = stream.readline()
        if "\0" in first:
            raise SourceError(encoding_sentence(path, "utf-8", content))
        delimiter = stated[1] if stated else max(_DELIMITERS, key=first.count)
        if settings.delimiter in first:  # else the setting is for another file
            delimiter = settings.delimiter or delimiter
        is_spaced = delimiter != " " and 0 < first.count(delimiter) == first.count(f"{delimiter} ")
        form = _Form(delimiter, settings.quote, is_spaced, skipped=1 if stated else 0)
        stream.seek(0)
        number, names = next(form.records(stream), (0, list[str]()))
        # Blank lines below a header belong to it: Polars counts the columns by the next line.
        blank = sum(1 for _ in takewhile(lambda line: not line.strip(), stream))
    if isinstance(names, str):
        row = ", and --no-header is for a first line that is a row" if settings.has_header else ""
        raise SourceError(f"line {number} of {path} has {names}{row}")
    if not any(names):
        raise SourceError(f"{path} is empty or starts with an empty line; a header line is expected")
    if not settings.has_header:
        return form, [f"column_{number}" for number in range(1, len(names) + 1)]
    names = [name.strip() for name in names]
    refuse_columns(names, path)
    # Programs write a header again: quoted or not, with blanks, in any case.
    quote = rf"(?:{re.escape(form.quote)}\s*)?"  # blanks match in one place, else many of them take long
    fields = [rf"\s*{quote}{re.escape(name)}\s*{quote}" for name in names]
    line = re.escape(first.rstrip("\r\n"))
    header = f"(?i)^(?:{re.escape(form.delimiter).join(fields)}|{line}\\s*)$"
    return replace(form, skipped=number + blank, header=header), [
        f"{name} (column {number})".strip() if names.count(name) > 1 else name
        for number, name in enumerate(names, 1)
    ]


def _checked_lines(content: Path, form: _Form, columns: list[str], work: Path) -> _Records | None:
    """Return a file of one record a line as it is, or else a copy without the malformed lines.

    The result is None if the lines of polars are not the records of the file: if the header is no line (in a
    file with other line ends), or a malformed line has a quote, which may begin a record.
    """
    line, width, has_quote = pl.col("line"), len(columns), pl.lit(False)
    unmarked = line.str.strip_prefix(_MARK)  # concatenated files have the mark inside
    fields = line.str.count_matches(form.delimiter, literal=True) + 1
    is_record = fields == width
    if form.quote:
        has_quote = line.str.contains(form.quote, literal=True)
        # The quotes of a record enclose whole fields, and are doubled inside.
        quote, delimiter = re.escape(form.quote), re.escape(form.delimiter)
        field = f"(?:{quote}(?:[^{quote}]|{quote}{quote})*{quote}|[^{quote}{delimiter}]*)"
        is_quoted_record = line.str.contains(f"^{field}(?:{delimiter}{field}){{{width - 1}}}$")
        is_record = pl.when(has_quote).then(is_quoted_record).otherwise(is_record)
    lines = pl.scan_lines(content, glob=False, row_index_name=ROW, row_index_offset=1)
    lines = lines.filter(line.str.strip_chars() != "")
    is_header = unmarked.str.contains(form.header) if form.header else pl.lit(False)
    is_header &= pl.col(ROW) > form.skipped
    is_record &= ~is_header
    wrong = lines.filter(~is_record).select(
        ROW, fields=pl.when(~is_header).then(fields), has_quote=has_quote & ~is_header
    )
    problems = wrong.collect(engine="streaming")
    if problems["has_quote"].any() or (problems[ROW] <= form.skipped).any():
        return None
    if problems.is_empty():
        return content, form, columns, Malformed()
    examples = [
        {"row": row, "problem": _HEADER if count is None else f"{count} of {width} fields"}
        for row, count, _ in problems.head(EXAMPLES).rows()
    ]
    target = new_file(work, "csv")
    records = lines.filter(is_record & (pl.col(ROW) > form.skipped))
    records.select(pl.concat_str(pl.col(ROW), unmarked, separator=form.delimiter)).sink_csv(
        target, include_header=False, quote_style="never", separator="\x1f"
    )
    malformed = Malformed(len(problems), tuple(examples))
    return target, replace(form, skipped=0), [ROW, *columns], malformed


def _rewritten(content: Path, form: _Form, columns: list[str], work: Path) -> _Records:
    """Copy the records of a file as plain CSV with line numbers, and count the malformed ones."""
    malformed, target = Malformed(), new_file(work, "csv")
    with (
        content.open(encoding=_UTF8, newline="") as source,
        target.open("w", encoding="utf-8", newline="") as copy,
    ):
        writer = csv.writer(copy, lineterminator="\n")
        for number, record in form.records(source, len(columns)):
            if isinstance(record, str):
                malformed = malformed.and_line(number, record)
            elif record:
                writer.writerow([number, *record])
    return target, _Form(",", '"', is_spaced=False, skipped=0), [ROW, *columns], malformed
