"""MovieLens as GroupLens ships it: 100K, 1M, and those of CSV files."""

import shutil
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
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


_COLUMNS = ColumnSettings(user="user_id", item="item_id", time="timestamp")
_ITEM_FEATURES = FeatureColumns(text=("title",), multi=("genres",), number=("year",), ignore=(EVERY,))
_USER_FEATURES = FeatureColumns(category=("gender", "age", "occupation"), ignore=(EVERY,))
_RATINGS = ("user_id", "item_id", "rating", "timestamp")
# Of each generation: the ratings and the delimiter of their fields, the films, and other files.
_LAYOUTS = (
    ("u.data", "\t", "u.item", "u.user", "u.genre"),
    ("ratings.dat", "::", "movies.dat", "users.dat"),
    ("ratings.csv", ",", "movies.csv"),
)
_HEADER = b"userId,movieId,rating,"  # of ratings.csv: other files have this name, too
WANTED = ", ".join(f"{ratings} and {films}" for ratings, _, films, *_ in _LAYOUTS)

_Folder = Path | zipfile.Path


@contextmanager
def _root(path: Path) -> Iterator[_Folder | None]:
    """Open a folder or a zip; None for another file."""
    if path.is_dir():
        yield path
    elif path.suffix.lower() == ".zip" and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield zipfile.Path(archive)
    else:
        yield None


def is_movielens(path: Path) -> bool:
    """Tell whether `path` is a folder or zip with the files of a MovieLens data set."""
    with suppress(*DAMAGED), _root(path) as root:
        return root is not None and _find(root) is not None
    return False


def open_movielens(path: Path, work: Path) -> Source:
    """Open a MovieLens folder or zip, whose files are copied to the folder `work`.

    Raises SourceError when it has the files of no generation.
    """
    try:
        with _root(path) as root:
            found = None if root is None else _find(root)
            if found is None:
                raise SourceError(f"{path} is not MovieLens data; it needs {WANTED}")
            place, (ratings, delimiter, *names) = found
            folder, existing = place, [name for name in (ratings, *names) if (place / name).is_file()]
            if isinstance(folder, zipfile.Path):  # under base names: paths of the archive are not followed
                folder = work / "movielens"
                folder.mkdir()
                for name in existing:
                    with (place / name).open("rb") as packed, (folder / name).open("wb") as copy:
                        shutil.copyfileobj(packed, copy)
    except DAMAGED as error:
        raise SourceError(f"{path} can't be unpacked: {error}; fetch it again") from None
    users = people(folder)
    items = films_100k(folder) if ratings == "u.data" else films(folder / names[0])
    has_header = ratings == "ratings.csv"
    form = FormatSettings(
        kind="csv", delimiter=delimiter, quote='"' if has_header else "", has_header=has_header
    )
    return Source(
        parts=((None, _read_ratings(folder / ratings, form, work)),),
        items=_as_table(items, folder / names[0]),
        users=None if users is None else _as_table(users, folder / names[1]),
        files=(path,) if path.is_file() else tuple(folder / name for name in existing),
        columns=_COLUMNS,
        item_features=_ITEM_FEATURES,
        user_features=None if users is None else _USER_FEATURES,
    )


def _find(root: _Folder) -> tuple[_Folder, tuple[str, ...]] | None:
    """Return the first of `root` and its subfolders that has the files of a layout, and the layout."""
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
