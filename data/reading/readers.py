"""CSV, Parquet and JSON lines as lazy tables: files, and folders of parts."""

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import polars as pl

from turret.data.errors import SourceError, TextEncodingError, brief
from turret.data.reading.delimited import scan_delimited
from turret.data.reading.encodings import encoding_sentence
from turret.data.reading.json_lines import scan_json_lines
from turret.data.reading.source_settings import FileFormat
from turret.data.reading.tables import (
    EXAMPLES,
    ROW,
    Malformed,
    Table,
    as_bytes,
    from_bytes,
    have_common_type,
    readable,
    refuse_columns,
)
from turret.data.reading.unpacking import (
    COMPRESSED,
    COMPRESSED_NAME,
    MARKED,
    as_utf8,
    unpacked,
    without_broken_lines,
)
from turret.data.rows import LOCAL, Engine

FORMATS = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
# These names beside Parquet files mark tables whose folders keep the files of older versions.
_VERSIONED = {"_delta_log": "Delta", ".hoodie": "Hudi", "metadata/*.metadata.json": "Iceberg"}
_SAMPLE = 10_000


def scan(path: Path, settings: FileFormat, work: Path, engine: Engine = LOCAL) -> Table:
    """Scan a file of any supported format, or a folder of parts; `work` is a folder for temporary files.

    `engine` checks the lines of texts.

    The format is `settings.kind`, or follows from the file name. Raises SourceError for an unknown format, a
    missing or an unreadable file.
    """
    path = Path(path)
    if path.is_dir():
        return join_parts(path, parts_of(path, settings), settings, work, engine)
    if not path.is_file():
        raise SourceError(absent(path))
    with readable(path), path.open("rb") as stream:
        head = stream.read(10)
        if not head:
            raise SourceError(f"{path} is empty; export it again")
    if path.suffix.lower() == ".parquet":
        _refuse_versions(path.parent, [])
    if not COMPRESSED.match(head) and (engine is LOCAL or path.suffix.lower() == ".parquet"):
        return _scan_content(path, path.name, path, settings, work)
    (scanned,) = scan_files([path], settings, work, engine)
    if scanned is None:
        raise SourceError(f"{path} is empty; export it again")
    return scanned[0]


def absent(path: Path) -> str:
    """Say that there is no file or folder of this name, but perhaps a pipe, which can be read only once."""
    if path.exists():
        return f"{path} is neither a file nor a folder; write its content into a file"
    return f"there is no file or folder {path}; check the path"


def stem_and_format(path: Path) -> tuple[str, str | None]:
    """Return the name of a file in lower case without its suffixes, and the format that they state."""
    name = COMPRESSED_NAME.sub("", path.name).lower()
    suffix = next((ending for ending in FORMATS if name.endswith(ending)), None)
    return (name, None) if suffix is None else (name.removesuffix(suffix), FORMATS[suffix])


def states_format(path: Path) -> bool:
    """Tell whether the name of a file, or of a file below a folder, states its format."""
    return bool(parts_of(path, FileFormat())) if path.is_dir() else stem_and_format(path)[1] is not None


def parts_of(folder: Path, settings: FileFormat) -> tuple[Path, ...]:
    """Return the files of the format below a folder, in natural order.

    Where `settings` name no format, these are all files whose names state a format.
    """
    kinds = {path: stem_and_format(path)[1] for path in visible_files(folder)}
    if settings.kind in ("auto", "movielens"):
        return tuple(path for path, kind in kinds.items() if kind is not None)
    return tuple(path for path, kind in kinds.items() if kind in (None, settings.kind))


def visible_files(folder: Path) -> tuple[Path, ...]:
    """Return all files below a folder in natural order, part.9 before part.10.

    Systems begin the names of files that are no data with a dot or an underscore.
    """
    paths = {path.relative_to(folder).parts: path for path in folder.rglob("*") if path.is_file()}
    names = [parts for parts in paths if not any(name.startswith((".", "_")) for name in parts)]
    return tuple(paths[parts] for parts in sorted(names, key=lambda parts: ([*map(_natural, parts)], parts)))


def _natural(name: str) -> list[str | int]:
    return [int(part) if at % 2 else part for at, part in enumerate(re.split("([0-9]+)", name))]


def join_parts(
    folder: Path, files: Sequence[Path], settings: FileFormat, work: Path, engine: Engine = LOCAL
) -> Table:
    """Scan files below `folder` as one table, in their order.

    Folders called `name=value` are columns. Raises SourceError for no file with rows, for files of several
    formats, for files that are no parts of one table, and for a table with several versions.
    """
    _refuse_versions(folder, files)
    kinds = {kind: path for path in reversed(files) if (kind := stem_and_format(path)[1])}
    if len(kinds) > 1:
        names = " and ".join(sorted(path.name for path in kinds.values()))
        raise SourceError(f"{folder} holds {names}, which are no parts of one table; name the file to read")
    if files and all(path.suffix.lower() == ".parquet" for path in files):
        return _scan_parquet(files, folder)
    tables: list[Table] = []
    starts, frames, examples = [0], list[pl.LazyFrame](), list[dict[str, Any]]()
    for file, scanned in zip(files, scan_files(files, settings, work, engine), strict=True):
        if scanned is not None:  # Spark writes a file for a part without rows
            table, size = scanned
            tables.append(table)
            rows = table.frame.select(
                pl.col(ROW).cast(pl.Int64) + starts[-1], *_common_columns(tables[0], table)
            )
            partitions = [pl.lit(value, pl.String).alias(name) for name, value in _partitions(folder, file)]
            frames.append(rows.with_columns(partitions))
            named = {"file": file.relative_to(folder).as_posix()}
            examples += [{**named, **example} for example in table.malformed.examples]
            starts.append(starts[-1] + size + 1)  # a file has no more lines than bytes
    if not tables:
        raise SourceError(
            f"{folder} holds no file with one of the suffixes {', '.join(FORMATS)}, or these are empty; give "
            "the format of others with --format csv, parquet or jsonl (JSON in any layout)"
        )
    _refuse_clashes(
        folder, {table.path: frame.collect_schema() for table, frame in zip(tables, frames, strict=True)}
    )
    with readable(folder):
        frame = pl.concat(frames, how="diagonal_relaxed")
        frame.collect_schema()
    malformed = Malformed(sum(table.malformed.count for table in tables), tuple(examples[:EXAMPLES]))
    placed = tuple((start, table.path) for start, table in zip(starts, tables, strict=False))
    return Table(frame, folder, tables[0].is_text, malformed, tuple(files), placed, lambda _: frames)


def _refuse_versions(folder: Path, files: Sequence[Path]) -> None:
    """Raise SourceError for a table format whose folder has the files of older versions, too.

    The folder may be the table, or hold several tables, or be a part of a table.
    """
    inside = (above for file in files for above in file.parents if folder in above.parents)
    for place in dict.fromkeys([folder, *inside, *folder.resolve().parents]):
        kind = next((kind for mark, kind in _VERSIONED.items() if any(place.glob(mark))), None)
        if kind is not None:
            raise SourceError(
                f"{place} is a {kind} table, whose folder keeps the files of older versions, with rows that "
                "were replaced or deleted; write its newest version as Parquet files (with Spark, or by "
                "polars.read_delta or scan_iceberg), and name these"
            )


def _common_columns(first: Table, table: Table) -> list[str]:
    """Return the columns that are read from a part: those of the first part, in JSON the part's columns.

    Raises SourceError for a part that lacks columns of the first, in JSON for a part that lacks most of them.
    """
    expected, existing = first.columns, table.columns
    missing = [name for name in expected if name not in existing]
    if missing and (first.is_text or 2 * len(missing) > len(expected)):
        raise SourceError(
            f"{table.path} has no column {', '.join(missing)} as {first.path.name} beside it has; parts of "
            "one table all have its columns, and a header in CSV: name the file to read"
        )
    return expected if first.is_text else existing


def _partitions(folder: Path, file: Path) -> list[tuple[str, str | None]]:
    pairs = [name.partition("=") for name in file.relative_to(folder).parts[:-1] if "=" in name]
    refuse_columns((name for name, *_ in pairs), folder)
    return [(name, None if value == _NULL_PARTITION else unquote(value)) for name, _, value in pairs]


def scan_files(
    files: Sequence[Path], settings: FileFormat, work: Path, engine: Engine
) -> Iterator[tuple[Table, int] | None]:
    """Yield the table of each file and the size of its content in bytes, or None for an empty file.

    The processes of `engine` scan the files, and put copies of texts into folders in `work`.
    """

    def scanned(file: Path) -> bytes:
        folder = Path(tempfile.mkdtemp(dir=work))
        content, name = unpacked(file, folder)
        size = content.stat().st_size
        table = _scan_content(content, name, file, settings, folder) if size else None
        with suppress(OSError):  # it has copies
            folder.rmdir()
        return as_bytes(table, size)

    for file, content in zip(files, engine.run(scanned, files), strict=True):
        yield from_bytes(content, file)


def _scan_content(content: Path, name: str, path: Path, settings: FileFormat, work: Path) -> Table:
    """Scan the decompressed content, called `name`, of the file `path`."""
    kind: str = settings.kind
    # A dump is Parquet, also for data that has another format.
    if kind in ("auto", "movielens") or stem_and_format(path)[1] == "parquet":
        file_kind = stem_and_format(Path(name))[1] or stem_and_format(path)[1]
        if file_kind is None:
            raise SourceError(
                f"{path} has none of the suffixes {', '.join(FORMATS)}; unpack an archive, and "
                "give the format of a file with --format csv, parquet or jsonl (JSON in any layout)"
            )
        kind = file_kind
    if kind == "parquet":
        return _scan_parquet([content], path)
    scan_text = scan_delimited if kind == "csv" else scan_json_lines
    with content.open("rb") as stream:
        is_utf8 = settings.encoding == "utf-8" and not MARKED.match(stream.read(4))
    text = content if is_utf8 else as_utf8(content, path, settings.encoding, work)
    try:
        return scan_text(text, path, settings, work)
    except TextEncodingError:
        if (repaired := without_broken_lines(text, work)) is None:
            raise TextEncodingError(encoding_sentence(path, "utf-8", text)) from None
        copy, malformed = repaired
        try:
            table = scan_text(copy, path, settings, work)
        except SourceError:  # a header or a part of an object is missing
            broken = malformed.examples[0]
            raise TextEncodingError(
                f"line {broken['row']:,} of {path}: {broken['problem']}, the encoding of the other lines; "
                "correct it"
            ) from None
        return replace(table, malformed=table.malformed.and_others(malformed))


def _scan_parquet(files: Sequence[Path], path: Path) -> Table:
    """Scan Parquet files as the table of `path`; parts whose types differ get common types."""
    is_partitioned = path.is_dir() and any(_partitions(path, file) for file in files)
    schemas = {file: _parquet_schema(file, path) for file in files}
    expected = schemas[files[0]]
    refuse_columns(expected, path)
    if any(schema.get(name) != dtype for schema in schemas.values() for name, dtype in expected.items()):
        return _joined(path, schemas)
    with readable(path):
        # The first part has the columns; a later part may have more.

        def scanned(some: Sequence[Path], first: int) -> pl.LazyFrame:
            return pl.scan_parquet(
                list(some),
                row_index_name=ROW,
                row_index_offset=first,
                extra_columns="ignore",
                glob=False,
                hive_partitioning=is_partitioned,
            )

        frame = scanned(files, 1)
        texts = _texts(frame)

    def cut(count: int) -> list[pl.LazyFrame]:
        pieces, first = list[pl.LazyFrame](), 1
        for file in files:
            rows = _height(file)
            whole = scanned([file], first).with_columns(texts)
            pieces += [whole.slice(start, count) for start in range(0, rows, count)]
            first += rows
        return pieces

    named = tuple(files) if path.is_dir() else (path,)
    return Table(frame.with_columns(texts), path, is_text=False, files=named, cut=cut)


def _height(file: Path) -> int:
    rows: int = pl.scan_parquet(file, glob=False, hive_partitioning=False).select(pl.len()).collect().item()
    return rows


def _parquet_schema(file: Path, path: Path) -> Mapping[str, pl.DataType]:
    """Return the schema of a Parquet file. Raises SourceError for a file that is no whole Parquet file."""
    shown = file if path.is_dir() else path
    with readable(shown), file.open("rb") as stream:
        begins = stream.read(4) == b"PAR1"
        stream.seek(max(file.stat().st_size - 4, 0))
        if not begins or stream.read() != b"PAR1":
            raise SourceError(
                f"{shown} is no whole Parquet file; export it again, or state its format with --format"
            )
        return pl.scan_parquet(file, glob=False, hive_partitioning=False).collect_schema()


def _joined(folder: Path, schemas: Mapping[Path, Mapping[str, pl.DataType]]) -> Table:
    """Join parts with other types, or another case of names, than the first; rows are numbered consecutively.

    Raises SourceError for a part without a column of the first, or with a column that has no common type.
    """
    first, *_ = schemas
    expected, frames, rows = dict(schemas[first]), list[pl.LazyFrame](), 0
    types = dict[Path, dict[str, pl.DataType]]()
    for file, schema in schemas.items():
        name_of = {name.lower(): name for name in schema} | {name: name for name in schema}
        column_of = {name: name_of.get(name) or name_of.get(name.lower(), "") for name in expected}
        place, folded = file.relative_to(folder), [name.lower() for name in schema]
        if ambiguous := [name for name in expected if name not in schema and folded.count(name.lower()) > 1]:
            raise SourceError(
                f"{folder}: {place} has several columns for {ambiguous[0]}, which {first.name} has, in other "
                "letters; rename the one that is meant"
            )
        if missing := [name for name, column in column_of.items() if not column]:
            raise SourceError(
                f"{folder}: {place} has no column {', '.join(missing)}, as {first.name} has; parts of one "
                "table all have its columns"
            )
        columns = [pl.col(column).alias(name) for name, column in column_of.items()]
        types[file] = {name: schema[column] for name, column in column_of.items()}
        frame = pl.scan_parquet(
            file, row_index_name=ROW, row_index_offset=rows + 1, glob=False, hive_partitioning=False
        )
        partitions = [pl.lit(value, pl.String).alias(name) for name, value in _partitions(folder, file)]
        frames.append(frame.select(pl.col(ROW).cast(pl.Int64), *columns, *partitions))
        with readable(file):
            rows += _height(file)
    _refuse_clashes(folder, types)
    frame = pl.concat(frames, how="vertical_relaxed")
    texts = _texts(frame)

    def cut(count: int) -> list[pl.LazyFrame]:
        return [
            part.slice(start, count).with_columns(texts)
            for file, part in zip(schemas, frames, strict=True)
            for start in range(0, _height(file), count)
        ]

    return Table(frame.with_columns(texts), folder, is_text=False, files=tuple(schemas), cut=cut)


def _refuse_clashes(folder: Path, schemas: Mapping[Path, Mapping[str, pl.DataType]]) -> None:
    """Raise SourceError for a column whose values in two parts have no common type."""
    known: dict[str, tuple[Path, pl.DataType]] = {}
    for file, schema in schemas.items():
        for name, dtype in schema.items():
            first, expected = known.setdefault(name, (file, dtype))
            if expected == pl.Null:
                known[name] = file, dtype
            elif not have_common_type(expected, dtype):
                raise SourceError(
                    f"{folder}: column {name!r} of {file.relative_to(folder)} holds {brief(dtype)}, and that "
                    f"of {first.name} {brief(expected)}; write both with one type"
                )


def _texts(frame: pl.LazyFrame) -> list[pl.Expr]:
    """Return columns of bytes as texts if their first values are UTF-8: Impala and Hive write texts so."""
    columns = [name for name, dtype in frame.collect_schema().items() if dtype == pl.Binary]
    if not columns:
        return []
    first = frame.head(_SAMPLE).select(columns).collect()
    return [pl.col(column.name).cast(pl.String) for column in first if _is_utf8(column)]


def _is_utf8(values: pl.Series) -> bool:
    try:
        values.cast(pl.String)
    except pl.exceptions.ComputeError:
        return False
    return True
