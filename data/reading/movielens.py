"""MovieLens as GroupLens ships it: 100K, 1M, and those of CSV files."""

import shutil
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from turret.data.errors import SourceError
from turret.data.reading.readers import scan
from turret.data.reading.schema import EVERY, ColumnSettings, FeatureColumns, FormatSettings
from turret.data.reading.tables import ROW, Source, Table
from turret.data.reading.unpacking import DAMAGED

_ID = pl.col("id").cast(pl.Int64).alias("item_id")
_YEAR = pl.col("title").str.extract(r"\((\d{4})\)\s*$").cast(pl.Int64)


def _lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 (10M and later) or Latin-1 file."""
    content = path.read_bytes()
    try:
        return content.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        return content.decode("latin-1").splitlines()


def films_100k(folder: Path) -> pl.DataFrame:
    """Read u.item: id, title, release date, video date, URL, and 0 or 1 per genre of u.genre."""
    genres = [line.rpartition("|")[0] for line in _lines(folder / "u.genre") if line]
    columns = ["id", "title", "release_date", "video", "url", *genres]
    frame = _texts([line.split("|") for line in _lines(folder / "u.item")], columns)
    marked = [pl.when(pl.col(genre) == "1").then(pl.lit(genre)) for genre in genres if genre != "unknown"]
    dated = pl.when(pl.col("release_date") != "").then(pl.col("release_date"))
    names = pl.concat_list(marked).list.drop_nulls()
    frame = frame.select(_ID, "title", genres=names, year=_YEAR, release_date=dated)
    return frame if frame["release_date"].is_not_null().any() else frame.drop("release_date")


def films(path: Path) -> pl.DataFrame:
    """Read movies.dat or movies.csv: id, title (may hold the delimiter), genres separated by bars."""
    if path.suffix == ".csv":
        frame = pl.read_csv(path, infer_schema=False, glob=False).rename({"movieId": "id"})
    else:
        films = [line.split("::", 1) for line in _lines(path) if line]
        frame = _texts([(film, *rest.rsplit("::", 1)) for film, rest in films], ["id", "title", "genres"])
    has_genres = ~pl.col("genres").fill_null("").is_in(["", "(no genres listed)"])
    genres = (
        pl.when(has_genres).then(pl.col("genres").str.split("|")).otherwise(pl.lit([], pl.List(pl.String)))
    )
    return frame.select(_ID, "title", genres=genres, year=_YEAR)


def _texts(rows: Sequence[Sequence[str]], columns: Sequence[str]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String), orient="row")


def people(folder: Path) -> pl.DataFrame | None:
    """Read u.user (id, age, gender, occupation, zip) or users.dat (id, gender, age, occupation, zip)."""
    layouts = {
        "u.user": ("|", ("user_id", "age", "gender", "occupation", "zip")),
        "users.dat": ("::", ("user_id", "gender", "age", "occupation", "zip")),
    }
    for name, (delimiter, columns) in layouts.items():
        if (folder / name).is_file():
            rows = [line.split(delimiter) for line in _lines(folder / name) if line]
            return _texts(rows, columns).with_columns(pl.col("user_id").cast(pl.Int64)).drop("zip")
    return None


COLUMNS = ColumnSettings(user="user_id", item="item_id", time="timestamp")
ITEM_FEATURES = FeatureColumns(text=("title",), multi=("genres",), number=("year",), ignore=(EVERY,))
USER_FEATURES = FeatureColumns(category=("gender", "age", "occupation"), ignore=(EVERY,))

_RATINGS = ("user_id", "item_id", "rating", "timestamp")


@dataclass(frozen=True)
class _Layout:
    """The files of one generation, the format of the ratings, and the beginning of their header, if any."""

    ratings: str
    movies: str
    others: tuple[str, ...]
    format: FormatSettings
    header: bytes = b""


_LAYOUTS = (
    _Layout(
        "u.data",
        "u.item",
        ("u.user", "u.genre"),
        FormatSettings(kind="csv", delimiter="\t", quote="", has_header=False),
    ),
    _Layout(
        "ratings.dat",
        "movies.dat",
        ("users.dat",),
        FormatSettings(kind="csv", delimiter="::", quote="", has_header=False),
    ),
    _Layout(
        "ratings.csv", "movies.csv", (), FormatSettings(kind="csv", delimiter=","), b"userId,movieId,rating,"
    ),
)
WANTED = ", ".join(f"{layout.ratings} and {layout.movies}" for layout in _LAYOUTS)


def is_movielens(path: Path) -> bool:
    """Tell whether `path` is a folder or zip with the files of a MovieLens data set."""
    if path.is_dir():
        return _find(path) is not None
    if path.suffix.lower() != ".zip" or not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive, suppress(*DAMAGED):
        return _find(zipfile.Path(archive)) is not None
    return False


def open_movielens(path: Path, work: Path) -> Source:
    """Open a MovieLens folder or zip; `work` is a folder for temporary files.

    Raises SourceError when it has the files of no generation.
    """
    location = _find(_unpack(path, work) if path.is_file() else path)
    if location is None:
        raise SourceError(f"{path} is not MovieLens data; it needs {WANTED}")
    folder, layout = Path(str(location[0])), location[1]
    items = films_100k(folder) if layout.movies == "u.item" else films(folder / layout.movies)
    names = [layout.ratings, layout.movies, *layout.others]
    files = (path,) if path.is_file() else tuple(folder / name for name in names if (folder / name).is_file())
    users = people(folder)
    return Source(
        parts=((None, _read_ratings(folder / layout.ratings, layout.format, work)),),
        items=_as_table(items, folder / layout.movies),
        users=None if users is None else _as_table(users, folder / layout.others[0]),
        files=files,
        columns=COLUMNS,
        item_features=ITEM_FEATURES,
        user_features=None if users is None else USER_FEATURES,
    )


def _find(folder: Path | zipfile.Path) -> tuple[Path | zipfile.Path, _Layout] | None:
    """Return the first of `folder` and its subfolders that has the files of a layout, and the layout."""
    folders: list[Path | zipfile.Path] = [path for path in folder.iterdir() if path.is_dir()]
    for candidate in (folder, *sorted(folders, key=lambda path: path.name)):
        if layout := _layout_of(candidate):
            return candidate, layout
    return None


def _layout_of(folder: Path | zipfile.Path) -> _Layout | None:
    """Return the layout of the files of a folder; others have such names too, but not the header."""
    existing = {path.name for path in folder.iterdir()}
    for layout in _LAYOUTS:
        if {layout.ratings, layout.movies} <= existing:
            with (folder / layout.ratings).open("rb") as stream:
                if stream.read(len(layout.header)) == layout.header:
                    return layout
    return None


def _unpack(path: Path, work: Path) -> Path:
    """Unpack the files of a layout under their base names; paths of the archive are not followed."""
    if not is_movielens(path):
        raise SourceError(f"{path} is not a zip of MovieLens data; it needs {WANTED}")
    target = work / "movielens"
    target.mkdir()
    try:
        with zipfile.ZipFile(path) as archive:
            location = _find(zipfile.Path(archive))
            assert location is not None
            folder, layout = location
            for name in (layout.ratings, layout.movies, *layout.others):
                if (folder / name).is_file():
                    with (folder / name).open("rb") as packed, (target / name).open("wb") as copy:
                        shutil.copyfileobj(packed, copy)
    except DAMAGED as error:
        raise SourceError(f"{path} can't be unpacked: {error}; fetch it again") from None
    return target


def _read_ratings(path: Path, settings: FormatSettings, work: Path) -> Table:
    table = scan(path, settings, work)
    columns = table.columns()
    if len(columns) != len(_RATINGS):
        raise SourceError(f"{path} has {len(columns)} columns; MovieLens ratings have {', '.join(_RATINGS)}")
    frame = table.frame.rename(dict(zip(columns, _RATINGS, strict=True)))
    return Table(frame, path, is_text=True, malformed=table.malformed)


def _as_table(frame: pl.DataFrame, path: Path) -> Table:
    return Table(
        frame.with_row_index(ROW, offset=1).with_columns(pl.col(ROW).cast(pl.Int64)).lazy(),
        path,
        is_text=False,
    )
