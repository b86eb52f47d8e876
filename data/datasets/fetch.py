"""Public data sets, downloaded, checked and unpacked: `turret data fetch`."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ValidationError

from turret.data.datasets.archive import unpack
from turret.data.datasets.download import download
from turret.data.datasets.public_datasets import DATASETS, Dataset
from turret.data.datasets.retail import convert_online_retail
from turret.data.errors import FetchError, without_credentials
from turret.data.files.staging import new_folder

_RECORD = "source.json"

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

    Raises `FetchError` for an unknown name, and for failures of network, server, disk and zip. Downloaded
    bytes remain for the next run, except for a zip with a wrong checksum, which is moved to `<zip>.wrong`.
    """
    dataset = _dataset(name)
    folder = target / name
    try:
        record = _read_record(folder)
        if record is None or not _complete(folder, record, dataset):
            _install(dataset, _address(dataset, base_url), folder, overwrite=record is not None)
    except OSError as error:
        raise FetchError(
            f"{error.filename or target}: {error.strerror}; {name} needs a writable folder "
            f"with {(dataset.size + dataset.unpacked_limit) / 1e6:,.0f} MB of free space"
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
        download(url, archive, dataset.size)
    _verify(archive, dataset)
    with new_folder(folder, overwrite) as fresh:
        unpack(archive, fresh, dataset.unpacked_limit)
        if convert := _CONVERSIONS.get(dataset.name):
            convert(fresh)
        record = _Record(name=dataset.name, url=url, checksums=dataset.checksums, files=_files(fresh))
        (fresh / _RECORD).write_text(record.model_dump_json(indent=2), "utf-8")
    if is_downloaded:  # a zip that the user put there stays
        archive.unlink()


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
