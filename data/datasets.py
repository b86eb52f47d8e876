"""Public data sets: their addresses, checksums and forms, and their download."""

import hashlib
import http.client
import re
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from pathlib import Path
from zipfile import BadZipFile, ZipFile

import polars as pl
from pydantic import BaseModel, ValidationError

from turret.data.errors import FetchError, without_credentials
from turret.data.files import new_file, new_folder
from turret.data.progress import progress

WORKBOOK = "Online Retail.xlsx"
# Codes such as 85123A stand beside 71053, and invoices such as C536379 (a return) beside 536365: all text.
_COLUMNS: dict[str, type[pl.DataType] | pl.DataType] = {
    "InvoiceNo": pl.String,
    "StockCode": pl.String,
    "Description": pl.String,
    "Quantity": pl.Int64,
    "InvoiceDate": pl.Datetime("ms"),
    "UnitPrice": pl.Float64,
    "CustomerID": pl.Int64,
    "Country": pl.String,
}


def convert_online_retail(folder: Path) -> None:
    """Write `events.parquet` and `items.parquet` beside the workbook in `folder`.

    `events.parquet` has every line of the workbook, returns and anonymous ones too: invoice_no,
    user_id, item_id, quantity, unit_price, timestamp (seconds, the shop's clock read as UTC), country.
    `items.parquet` has one line a product: item_id and title, its most frequent description.

    Raises `FetchError` if the workbook is missing or does not have the columns that UCI describes.
    """
    lines = _read(folder / WORKBOOK)
    lines.select(
        pl.col("InvoiceNo").alias("invoice_no"),
        pl.col("CustomerID").alias("user_id"),
        pl.col("StockCode").alias("item_id"),
        pl.col("Quantity").alias("quantity"),
        pl.col("UnitPrice").alias("unit_price"),
        pl.col("InvoiceDate").dt.epoch("s").alias("timestamp"),
        pl.col("Country").alias("country"),
    ).write_parquet(folder / "events.parquet")
    _items(lines).write_parquet(folder / "items.parquet")


def _read(workbook: Path) -> pl.DataFrame:
    if not workbook.exists():
        raise FetchError(f"{workbook} is not in the zip; fetch the zip that UCI publishes")
    try:
        lines = pl.read_excel(workbook, schema_overrides=_COLUMNS)
        return lines.select(pl.col(name).cast(kind) for name, kind in _COLUMNS.items())
    except (pl.exceptions.PolarsError, KeyError) as error:
        raise FetchError(f"{workbook} does not have the columns {', '.join(_COLUMNS)} ({error})") from None


def _items(lines: pl.DataFrame) -> pl.DataFrame:
    titles = (
        lines.with_columns(pl.col("Description").str.strip_chars())
        .group_by("StockCode", "Description")
        .len()
        .sort("StockCode", pl.col("Description").is_null(), -pl.col("len").cast(pl.Int64), "Description")
    )
    return titles.unique("StockCode", keep="first", maintain_order=True).select(
        pl.col("StockCode").alias("item_id"), pl.col("Description").alias("title")
    )


_GROUPLENS_TERMS = (
    "For research, with acknowledgement (Harper & Konstan 2015, doi:10.1145/2827872); "
    "no commercial use without GroupLens' permission, and its README says who may redistribute it."
)


class Dataset(BaseModel, frozen=True, extra="forbid"):
    """A published zip: address, checksums and terms of use."""

    name: str
    title: str
    url: str
    size: int  # bytes of the zip
    checksums: dict[str, str]  # hashlib's name of the algorithm -> hexadecimal digest; all must match
    checksum_source: str
    terms: str

    @property
    def file(self) -> str:
        """The name of the zip, the same on every mirror."""
        return self.url.rsplit("/", 1)[1]


def _movielens(name: str, title: str, file: str, size: int, md5: str, sha256: str) -> Dataset:
    return Dataset(
        name=name,
        title=title,
        url=f"https://files.grouplens.org/datasets/movielens/{file}",
        size=size,
        checksums={"md5": md5, "sha256": sha256},
        checksum_source=f"GroupLens publishes the MD5 beside the zip, as {file}.md5.",
        terms=_GROUPLENS_TERMS,
    )


_DATASETS = (
    _movielens(
        "movielens-100k",
        "MovieLens 100K",
        "ml-100k.zip",
        size=4_924_029,
        md5="0e33842e24a9c977be4e0107933c0723",
        sha256="50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
    ),
    _movielens(
        "movielens-1m",
        "MovieLens 1M",
        "ml-1m.zip",
        size=5_917_549,
        md5="c4d9eecfca2ab87c1945afe126590906",
        sha256="a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
    ),
    _movielens(
        "movielens-32m",
        "MovieLens 32M",
        "ml-32m.zip",
        size=238_950_008,
        md5="d472be332d4daa821edc399621853b57",
        sha256="e4a68655d7386b8f95f2f2424b2ff975dfdd15ffd59e0d864a14dca43e99d6ee",
    ),
    Dataset(
        name="online-retail",
        title="Online Retail",
        url="https://archive.ics.uci.edu/static/public/352/online+retail.zip",
        size=23_715_478,
        checksums={"sha256": "f5385cbb54bbebf7196389109c6b0621faab0c304e3702548165e71c84aede8b"},
        checksum_source="UCI publishes none; this is what other projects recorded for the same address.",
        terms="CC BY 4.0, with acknowledgement (Chen 2015, doi:10.24432/C5BW33).",
    ),
)
DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in _DATASETS}


_RECORD = "source.json"
_TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 20

# Conversions of unpacked files to formats that `turret data prepare` reads.
_CONVERSIONS: dict[str, Callable[[Path], None]] = {"online-retail": convert_online_retail}


class _Record(BaseModel, frozen=True, extra="forbid"):
    """The content of source.json in a fetched folder."""

    name: str
    url: str
    checksums: dict[str, str]
    files: dict[str, int]  # path inside the folder -> bytes


def fetch(name: str, target: Path, base_url: str | None = None) -> Path:
    """Download the data set `name`, unpack it into the folder `<target>/<name>`, and return that path.

    A complete folder, or a zip that is already in `target`, is not downloaded again. `base_url` is the folder
    of a mirror; the zip must pass the same checksums. `source.json` in the folder records the source.

    Raises `FetchError` for an unknown name, and for failures of network, server, disk and zip. A zip with a
    wrong checksum is moved to `<zip>.wrong`.
    """
    dataset = _dataset(name)
    folder = target / name
    try:
        record = _read_record(folder)
        if record is None or not _complete(folder, record, dataset):
            _install(dataset, _address(dataset, base_url), folder, overwrite=record is not None)
    except OSError as error:
        raise FetchError(
            f"{error.filename or target}: {error.strerror}; {name} needs a writable folder with several "
            f"times {dataset.size / 1e6:,.0f} MB of free space"
        ) from None
    return folder


def _dataset(name: str) -> Dataset:
    if name not in DATASETS:
        raise FetchError(f"there is no data set {name!r}; choose one of {', '.join(DATASETS)}")
    return DATASETS[name]


def _address(dataset: Dataset, base_url: str | None) -> str:
    if base_url is None:
        return dataset.url
    if not re.match(r"https?://[^/@]+(/|$)", base_url):
        shown = without_credentials(base_url)
        raise FetchError(
            f"--base-url {shown!r} is not a URL without user and password; give https://host/folder"
        )
    return f"{base_url.rstrip('/')}/{dataset.file}"


def _install(dataset: Dataset, url: str, folder: Path, overwrite: bool) -> None:
    if folder.exists() and not overwrite:
        raise FetchError(
            f"{folder} exists and was not fetched by turret; move it away or give another target"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    archive = folder.parent / dataset.file
    is_downloaded = not archive.exists()
    if is_downloaded:
        with new_file(archive) as fresh_archive:
            _download(url, fresh_archive, dataset.size)
    _verify(archive, dataset)
    with new_folder(folder, overwrite) as fresh:
        _unpack(archive, fresh)
        if convert := _CONVERSIONS.get(dataset.name):
            convert(fresh)
        record = _Record(name=dataset.name, url=url, checksums=dataset.checksums, files=_files(fresh))
        (fresh / _RECORD).write_text(record.model_dump_json(indent=2), "utf-8")
    if is_downloaded:  # a zip that the user put there stays
        archive.unlink()


def _download(url: str, path: Path, size: int) -> None:
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "turret"})
        with (
            urllib.request.urlopen(request, timeout=_TIMEOUT) as response,
            path.open("wb") as file,
            progress(f"downloading {url.rsplit('/', 1)[-1]}", total=size) as advance,
        ):
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                advance(len(chunk))
    except urllib.error.HTTPError as error:
        error.close()
        raise FetchError(
            f"{url}: the server responded {error.code} {error.reason}; the file may have moved: open the "
            "address in a browser, or give a mirror with --base-url"
        ) from None
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise FetchError(
            f"{url} can't be fetched ({getattr(error, 'reason', error)}); check the network and the proxy "
            "(https_proxy), run the same command again, or give a mirror with --base-url"
        ) from None
    except ValueError as error:  # its text may have a part of a password
        raise FetchError(
            f"{url} is not a valid address ({type(error).__name__}), or https_proxy isn't; give one like "
            "https://host/folder"
        ) from None


def _unpack(archive: Path, folder: Path) -> None:
    """Extract the zip, whose checksum is right, without the one folder around its files."""
    try:
        with ZipFile(archive) as source:
            files = [member for member in source.infolist() if not member.is_dir()]
            has_folder = len({member.filename.partition("/")[0] for member in files}) == 1 < len(files)
            for member in files:
                member.filename = member.filename.partition("/")[2] if has_folder else member.filename
                source.extract(member, folder)
    except (BadZipFile, zlib.error, NotImplementedError) as error:
        raise FetchError(f"{archive} is damaged ({error}); delete it and fetch it again") from None


def _verify(archive: Path, dataset: Dataset) -> None:
    for algorithm, expected in dataset.checksums.items():
        with archive.open("rb") as file:
            actual = hashlib.file_digest(file, algorithm).hexdigest()
        if actual != expected:
            wrong = archive.replace(archive.with_name(archive.name + ".wrong"))
            raise FetchError(
                f"{archive} has the {algorithm} {actual} instead of {expected} and "
                f"was moved to {wrong}; run the same command again, "
                "or give a mirror of the published file with --base-url"
            )


def _read_record(folder: Path) -> _Record | None:
    try:
        return _Record.model_validate_json((folder / _RECORD).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def _complete(folder: Path, record: _Record, dataset: Dataset) -> bool:
    files = _files(folder)
    present = all(files.get(file) == size for file, size in record.files.items())
    return present and record.checksums == dataset.checksums


def _files(folder: Path) -> dict[str, int]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths}
