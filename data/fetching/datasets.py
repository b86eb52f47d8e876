"""Public data sets: their addresses, checksums and forms, and their download."""

import json
import tempfile
import urllib.request
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile, ZipFile

import polars as pl

from turret.data.errors import FetchError, without_credentials
from turret.data.fetching.downloads import CHUNK, NETWORK, TIMEOUT, reason_of
from turret.data.files import new_folder
from turret.data.manifest import hash_file
from turret.data.progress import progress

WORKBOOK = "Online Retail.xlsx"
# Codes such as 85123A stand beside 71053, and invoices such as C536379 (a return) beside 536365: all are
# text.
_COLUMNS: dict[str, tuple[str, type[pl.DataType] | pl.DataType]] = {
    "InvoiceNo": ("invoice_no", pl.String),
    "CustomerID": ("user_id", pl.Int64),
    "StockCode": ("item_id", pl.String),
    "Quantity": ("quantity", pl.Int64),
    "UnitPrice": ("unit_price", pl.Float64),
    "InvoiceDate": ("timestamp", pl.Datetime("ms")),
    "Country": ("country", pl.String),
    "Description": ("title", pl.String),
}


def convert_online_retail(folder: Path) -> None:
    """Write `events.parquet` and `items.parquet` beside the workbook in `folder`.

    `events.parquet` has every line of the workbook, returns and anonymous ones too: invoice_no,
    user_id, item_id, quantity, unit_price, timestamp (seconds, the shop's clock read as UTC), country.
    `items.parquet` has one line a product: item_id and title, its most frequent description.

    Raises `FetchError` if the workbook is missing or does not have the columns that UCI describes.
    """
    workbook, types = folder / WORKBOOK, {name: dtype for name, (_, dtype) in _COLUMNS.items()}
    try:
        # The workbook is read from bytes, as Polars takes a path for a pattern.
        lines = pl.read_excel(workbook.read_bytes(), schema_overrides=types)
        lines = lines.select(pl.col(name).cast(dtype).alias(new) for name, (new, dtype) in _COLUMNS.items())
    except (pl.exceptions.PolarsError, KeyError, FileNotFoundError) as error:
        raise FetchError(f"{workbook} does not have the columns {', '.join(_COLUMNS)} ({error})") from None
    events = lines.drop("title").with_columns(pl.col("timestamp").dt.epoch("s"))
    events.write_parquet(folder / "events.parquet")
    titles = lines.group_by("item_id", pl.col("title").str.strip_chars()).len()
    titles = titles.sort("item_id", pl.col("title").is_null(), -pl.col("len").cast(pl.Int64), "title")
    items = titles.unique("item_id", keep="first", maintain_order=True).drop("len")
    items.write_parquet(folder / "items.parquet")


@dataclass(frozen=True)
class Dataset:
    """A published zip: its address, size in bytes, SHA-256 in hexadecimal, and terms of use."""

    title: str
    url: str
    size: int
    sha256: str
    terms: str
    convert: Callable[[Path], None] | None = None
    """The conversion of the unpacked files to those that `turret data prepare` reads."""


def _movielens(title: str, file: str, size: int, sha256: str) -> Dataset:
    terms = (
        "For research, with acknowledgement (Harper & Konstan 2015, doi:10.1145/2827872); "
        "no commercial use without GroupLens' permission, and its README says who may redistribute it."
    )
    return Dataset(title, f"https://files.grouplens.org/datasets/movielens/{file}", size, sha256, terms)


DATASETS = {
    "movielens-100k": _movielens(
        "MovieLens 100K",
        "ml-100k.zip",
        4_924_029,
        "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
    ),
    "movielens-1m": _movielens(
        "MovieLens 1M",
        "ml-1m.zip",
        5_917_549,
        "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
    ),
    "movielens-32m": _movielens(
        "MovieLens 32M",
        "ml-32m.zip",
        238_950_008,
        "e4a68655d7386b8f95f2f2424b2ff975dfdd15ffd59e0d864a14dca43e99d6ee",
    ),
    # UCI publishes no checksum; other projects have recorded this one.
    "online-retail": Dataset(
        "Online Retail",
        "https://archive.ics.uci.edu/static/public/352/online+retail.zip",
        23_715_478,
        "f5385cbb54bbebf7196389109c6b0621faab0c304e3702548165e71c84aede8b",
        "CC BY 4.0, with acknowledgement (Chen 2015, doi:10.24432/C5BW33).",
        convert_online_retail,
    ),
}

_RECORD = "source.json"


def fetch(name: str, target: Path, base_url: str | None = None) -> Path:
    """Download the data set `name`, unpack it into the folder `<target>/<name>`, and return that path.

    A fetched folder, or a zip that is already in `target`, is not downloaded again. `base_url` is the folder
    of a mirror; the zip must have the same checksum. `source.json` in the folder records the source.

    Raises `FetchError` for an unknown name, and for failures of network, server, disk and zip.
    """
    if name not in DATASETS:
        raise FetchError(f"there is no data set {name!r}; choose one of {', '.join(DATASETS)}")
    dataset, folder = DATASETS[name], target / name
    archive = target / dataset.url.rpartition("/")[2]
    url = dataset.url if base_url is None else f"{base_url.rstrip('/')}/{archive.name}"
    try:
        fetched = _fetched(folder)
        if fetched == dataset.sha256:
            return folder
        if folder.exists() and fetched is None:
            raise FetchError(
                f"{folder} exists and was not fetched by turret; move it away or give another target"
            )
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=target) as work:
            if not archive.exists():  # a zip that the user put there stays
                archive = Path(work) / archive.name
                _download(url, archive, dataset.size)
            _verify(archive, dataset)
            with new_folder(folder, overwrite=fetched is not None) as fresh:
                _unpack(archive, fresh)
                if dataset.convert is not None:
                    dataset.convert(fresh)
                record = {"url": without_credentials(url), "sha256": dataset.sha256}
                (fresh / _RECORD).write_text(json.dumps(record), "utf-8")
    except OSError as error:
        raise FetchError(
            f"{error.filename or target}: {error.strerror}; {name} needs a writable folder with several "
            f"times {dataset.size / 1e6:,.0f} MB of free space"
        ) from None
    return folder


def _fetched(folder: Path) -> str | None:
    """Return the checksum of the zip that a folder was made of; None for another folder."""
    try:
        return str(json.loads((folder / _RECORD).read_bytes())["sha256"])
    except (FileNotFoundError, ValueError, KeyError):
        return None


def _download(url: str, path: Path, size: int) -> None:
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "turret"})
        with (
            urllib.request.urlopen(request, timeout=TIMEOUT) as response,
            path.open("wb") as file,
            progress(f"downloading {path.name}", total=size) as advance,
        ):
            while chunk := response.read(CHUNK):
                file.write(chunk)
                advance(len(chunk))
    except NETWORK as error:
        raise FetchError(
            f"{url} can't be fetched ({reason_of(error)}); check the address, the network and the proxy "
            "(https_proxy), or give a mirror with --base-url"
        ) from None


def _verify(archive: Path, dataset: Dataset) -> None:
    actual = hash_file(archive).sha256
    if actual != dataset.sha256:
        raise FetchError(
            f"{archive} has the sha256 {actual} instead of {dataset.sha256}; remove it if it is still "
            "there, and run the same command again, or give a mirror of the published file with --base-url"
        )


def _unpack(archive: Path, folder: Path) -> None:
    """Extract the zip without the one folder around its files."""
    try:
        with ZipFile(archive) as source:
            files = [member for member in source.infolist() if not member.is_dir()]
            has_folder = len({member.filename.partition("/")[0] for member in files}) == 1 < len(files)
            for member in files:
                member.filename = member.filename.partition("/")[2] if has_folder else member.filename
                source.extract(member, folder)
    except (BadZipFile, zlib.error, NotImplementedError) as error:
        raise FetchError(f"{archive} is damaged ({error}); delete it and fetch it again") from None
