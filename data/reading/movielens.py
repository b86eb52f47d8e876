"""MovieLens as GroupLens ships it: 100K, 1M, and the data sets of CSV files."""

import shutil
import zipfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import polars as pl

from turret.data.errors import SourceError
from turret.data.reading.readers import scan
from turret.data.reading.schema import EVERY, FeatureColumns
from turret.data.reading.source_settings import FormatSettings
from turret.data.reading.tables import ROW, Source, Table
from turret.data.reading.unpacking import DAMAGED, as_utf8

_ITEM_FEATURES = FeatureColumns(text=("title",), multi=("genres",), number=("year",), ignore=(EVERY,))
_USER_FEATURES = FeatureColumns(category=("gender", "age", "occupation"), ignore=(EVERY,))
_RATINGS = ("user_id", "item_id", "rating", "timestamp")
# Each generation has ratings, with the delimiter of their fields, films, and other files.
_LAYOUTS = (
    ("u.data", "\t", "u.item", "u.user", "u.genre"),
    ("ratings.dat", "::", "movies.dat", "users.dat"),
    ("ratings.csv", ",", "movies.csv"),
)
_HEADER = b"userId,movieId,rating,"  # the header of ratings.csv; other files have this name, too
WANTED = ", ".join(f"{ratings} and {films}" for ratings, _, films, *_ in _LAYOUTS)
# The lines of films and people; a title may hold the delimiter.
_LINES = {
    "u.item": r"^(?<item_id>\d+)\|(?<title>.*?)\|(?<release_date>[^|]*)\|[^|]*\|[^|]*\|(?<marks>[01|]*)$",
    "movies.dat": r"^(?<item_id>\d+)::(?<title>.*)::(?<genres>.*)$",
    "u.user": r"^(?<user_id>\d+)\|(?<age>.*?)\|(?<gender>.*?)\|(?<occupation>.*?)\|",
    "users.dat": r"^(?<user_id>\d+)::(?<gender>.*?)::(?<age>.*?)::(?<occupation>.*?)::",
}

_Folder = Path | zipfile.Path


def is_movielens(path: Path) -> bool:
    """Tell whether `path` is a folder or zip with the files of a MovieLens data set."""
    with suppress(*DAMAGED):
        return _find(path) is not None
    return False


def open_movielens(path: Path, work: Path) -> Source:
    """Open a MovieLens folder or zip, whose files are copied to the folder `work`.

    Raises SourceError when it has the files of no generation.
    """
    try:
        location = _find(path)
        if location is None:
            raise SourceError(f"{path} is not MovieLens data; it needs {WANTED}")
        folder, (ratings, delimiter, *names) = location
        existing = [name for name in (ratings, *names) if (folder / name).is_file()]
        if isinstance(folder, zipfile.Path):  # under base names: paths of the archive are not followed
            place, folder = folder, work / "movielens"
            folder.mkdir()
            for name in existing:
                with (place / name).open("rb") as packed, (folder / name).open("wb") as copy:
                    shutil.copyfileobj(packed, copy)
    except DAMAGED as error:
        raise SourceError(f"{path} can't be unpacked: {error}; fetch it again") from None
    has_header = ratings == "ratings.csv"
    form = FormatSettings(
        kind="csv", delimiter=delimiter, quote='"' if has_header else "", has_header=has_header
    )
    table = scan(folder / ratings, form, work)
    columns = table.columns
    if len(columns) != len(_RATINGS):
        raise SourceError(
            f"{folder / ratings} has {len(columns)} columns; MovieLens ratings have {', '.join(_RATINGS)}"
        )
    events = table.frame.rename(dict(zip(columns, _RATINGS, strict=True)))
    tables = {name: _table(folder / name, work) for name in existing if name in ("u.user", "users.dat")}
    users = next(iter(tables.values()), None)
    items = _films(folder / names[0], work)
    files = (path,) if path.is_file() else tuple(folder / name for name in existing)
    return Source(
        parts=((None, Table(events, table.path, is_text=True, malformed=table.malformed)),),
        items=replace(items, files=files),
        users=users,
        item_features=_ITEM_FEATURES,
        user_features=None if users is None else _USER_FEATURES,
    )


def _find(path: Path) -> tuple[_Folder, tuple[str, ...]] | None:
    """Return the first folder (or zip) with the files of a layout, `path` or a subfolder, and the layout."""
    is_packed = path.suffix.lower() == ".zip" and zipfile.is_zipfile(path)
    if not is_packed and not path.is_dir():
        return None
    root: _Folder = zipfile.Path(path) if is_packed else path
    folders: list[_Folder] = [path for path in root.iterdir() if path.is_dir()]
    for folder in (root, *sorted(folders, key=lambda path: path.name)):
        existing = {path.name for path in folder.iterdir()}
        for layout in _LAYOUTS:
            ratings, _, films, *_ = layout
            if not {ratings, films} <= existing:
                continue
            with (folder / ratings).open("rb") as stream:
                if ratings != "ratings.csv" or stream.read(len(_HEADER)) == _HEADER:
                    return folder, layout
    return None


def _films(path: Path, work: Path) -> Table:
    """Read the films, with lists of genres, and the years in their titles."""
    if path.name == "movies.csv":
        frame = pl.read_csv(path, infer_schema=False, glob=False).rename({"movieId": "item_id"})
        table = Table(frame.with_row_index(ROW, 1).lazy(), path, is_text=False)
    else:
        table = _table(path, work)
    dates = []
    if path.name == "u.item":  # 0 or 1 for each genre
        lines = as_utf8(path.with_name("u.genre"), path, "latin-1", work).read_text("utf-8").splitlines()
        names = [line.rpartition("|")[0] for line in lines if line]
        marks = pl.col("marks").str.split("|")
        genres = pl.concat_list(
            pl.when(marks.list.get(place, null_on_oob=True) == "1").then(pl.lit(name))
            for place, name in enumerate(names)
            if name != "unknown"
        ).list.drop_nulls()
        dates = [pl.when(pl.col("release_date") != "").then(pl.col("release_date"))]
    else:
        is_known = ~pl.col("genres").fill_null("").is_in(["", "(no genres listed)"])
        none = pl.lit([], pl.List(pl.String))
        genres = pl.when(is_known).then(pl.col("genres").str.split("|")).otherwise(none)
    year = pl.col("title").str.extract(r"\((\d{4})\)\s*$").cast(pl.Int64)
    ids = pl.col(ROW, "item_id").cast(pl.Int64)
    return replace(
        table, frame=table.frame.select(ids, "title", genres.alias("genres"), year.alias("year"), *dates)
    )


def _table(path: Path, work: Path) -> Table:
    """Scan lines of UTF-8 (10M and later) or Latin-1 by their pattern."""
    content = as_utf8(path, path, "latin-1", work)
    lines = pl.scan_lines(content, glob=False, row_index_name=ROW, row_index_offset=1)
    fields = pl.col("line").str.extract_groups(_LINES[path.name])
    frame = lines.filter(pl.col("line") != "").select(ROW, fields.alias("fields")).unnest("fields")
    return Table(frame.with_columns(pl.col("^user_id$").cast(pl.Int64)), path, is_text=False)
