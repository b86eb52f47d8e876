"""The movies and users tables of MovieLens, in the layouts of all generations."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

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
