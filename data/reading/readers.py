"""CSV, Parquet and JSON lines as lazy tables."""

from collections.abc import Callable
from pathlib import Path

import polars as pl

from turret.data.errors import SourceError
from turret.data.reading.delimited import scan_delimited
from turret.data.reading.json_lines import scan_json_lines
from turret.data.reading.schema import FormatSettings
from turret.data.reading.tables import ROW, Table, readable

SUFFIXES = {
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "csv",
    ".tsv.gz": "csv",
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}


def scan(path: Path, settings: FormatSettings, work: Path) -> Table:
    """Scan a file of any supported format; `work` is a folder for temporary files.

    The format is `settings.kind`, or follows from the file name. A folder of Parquet files is one table, in
    order of their names. Raises SourceError for an unknown format, a missing or an unreadable file.
    """
    path = Path(path)
    if is_parts(path):
        return _scan_parquet(path, settings, work)
    if not path.is_file():
        raise SourceError(f"there is no file {path}; check the path")
    return _SCANNERS[_kind(path, settings)](path, settings, work)


def is_parts(path: Path) -> bool:
    """Tell whether `path` is a folder with Parquet files such as `part-00000.parquet`."""
    return bool(_parts(path))


def files_of(path: Path) -> tuple[Path, ...]:
    """Return the files of `path`: its parts, or itself."""
    return _parts(path) or (path,)


def _parts(path: Path) -> tuple[Path, ...]:
    return tuple(sorted(path.glob("part*.parquet"))) if path.is_dir() else ()


def suffix(path: Path) -> str | None:
    """Return the suffix that determines the format of a file, or None."""
    name = path.name.lower()
    suffixes = sorted(SUFFIXES, key=len, reverse=True)
    return next((ending for ending in suffixes if name.endswith(ending)), None)


def _kind(path: Path, settings: FormatSettings) -> str:
    if settings.kind not in {"auto", "movielens"}:
        return settings.kind
    file_suffix = suffix(path)
    if file_suffix is None:
        raise SourceError(
            f"{path} has none of the suffixes {', '.join(SUFFIXES)}; "
            "give its format with --format csv, parquet or jsonl"
        )
    return SUFFIXES[file_suffix]


def _scan_parquet(path: Path, settings: FormatSettings, work: Path) -> Table:
    files = files_of(path)
    with readable(path):
        # The first part has the columns; a later one may have more.
        frame = pl.scan_parquet(
            list(files), row_index_name=ROW, row_index_offset=1, extra_columns="ignore", glob=False
        )
        frame.collect_schema()
    return Table(frame, path, is_text=False, files=files)


_SCANNERS: dict[str, Callable[[Path, FormatSettings, Path], Table]] = {
    "csv": scan_delimited,
    "parquet": _scan_parquet,
    "jsonl": scan_json_lines,
}
