"""Object stores by URL (`s3://`, `gs://`), through fsspec and the driver of the scheme.

Logs are copied before they are read. Prepared data is a manifest, and files below the name of their
fingerprint. The manifest is written last, so older data stays whole until then.
"""

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from turret.data.configuration import Place as Place
from turret.data.configuration import is_url as is_url
from turret.data.errors import (
    DataError,
    FetchError,
    MissingExtraError,
    SourceError,
    TurretError,
    without_credentials,
)
from turret.data.extras import install_command
from turret.data.fetching.downloads import download, file_name, is_web
from turret.data.files import new_folder, scratch_folder, temporary_folder
from turret.data.manifest import MANIFEST, DataManifest, hash_files

_OF_DATA = re.compile("[0-9a-f]{64}/")


class Objects:
    """The object at `url`, or the objects below it, by names relative to `url` ("" for the object at it).

    All methods raise SourceError for a store that refuses or does not answer.
    """

    def __init__(self, url: str) -> None:
        """Raises SourceError for an unknown scheme or no bucket, and MissingExtraError without its driver."""
        self.url = url.rstrip("/")
        scheme = url.partition("://")[0].lower()
        if "://" not in self.url:  # fsspec would take it as a folder of this name
            raise SourceError(f"{url} names no bucket; write it like {scheme}://BUCKET/FOLDER")
        try:
            import fsspec

            if scheme not in fsspec.available_protocols() or scheme in ("file", "local"):
                raise SourceError(f"{url}: {scheme}:// is no object store; use s3:// or gs://, or a path")
            self._store, self._path = fsspec.url_to_fs(self.url)
        except ImportError as error:
            extra = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}.get(scheme)
            remedy = f"run: {install_command(extra)}" if extra else f"install it ({error})"
            raise MissingExtraError(f"{url} needs a driver that is not installed; {remedy}") from None
        except (ValueError, OSError) as error:
            raise SourceError(f"{url} can't be opened: {error}; check the address") from error

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each object by name; empty if there is none."""
        with self._sentences("read"):
            self._store.invalidate_cache()
            try:
                entry = self._store.info(self._path)
            except FileNotFoundError:
                return {}
            if entry["type"] == "file":
                return {"": entry["size"]}
            entries = self._store.find(self._path, detail=True)
        below = len(self._path.rstrip("/")) + 1
        # A name that ends with a slash marks a folder.
        return {path[below:]: entry["size"] for path, entry in entries.items() if not path.endswith("/")}

    def download(self, sizes: dict[str, int], target: Path) -> None:
        """Copy the objects named in `sizes` to files with these names below `target`, or to `target` itself.

        Raises SourceError also for a name that leads out of `target`, and for a copy of another size.
        """
        for name in sizes:
            if ".." in PurePosixPath(name).parts or name.startswith("/"):
                raise SourceError(
                    f"{self.url} has an object {name!r}, which no file can be called; rename it"
                )
        files = [target / name for name in sizes]
        for file in files:
            file.parent.mkdir(parents=True, exist_ok=True)
        with self._sentences("read"):
            self._store.get([self._at(name) for name in sizes], list(map(str, files)))
        for file, (name, size) in zip(files, sizes.items(), strict=True):
            if file.stat().st_size != size:
                raise SourceError(
                    f"{self.url}/{name}".rstrip("/") + " has changed while it was read; run the command again"
                )

    def upload(self, files: Mapping[str, Path]) -> None:
        """Write files as objects with these names."""
        with self._sentences("written"):
            self._store.put(list(map(str, files.values())), list(map(self._at, files)))

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects."""
        if names:
            with self._sentences("written"):
                self._store.rm(list(map(self._at, names)))

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}" if name else self._path

    @contextmanager
    def _sentences(self, done: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # each driver has errors of its own
            reason = (str(error) or type(error).__name__).strip().split("\n")[0]
            raise SourceError(
                f"{self.url} can't be {done}: {reason}; check the address, and its driver's "
                "credentials and endpoint (docs/data.md, Object stores)"
            ) from error


TABLE = "table://"
"""Begins the names of tables of catalogs, which are no objects: Spark reads them."""


@contextmanager
def local_copies(urls: Sequence[str], target: Path, has_tables: bool = False) -> Iterator[dict[Place, Path]]:
    """Yield copies of objects and of files of the web by URL, in a hidden folder that goes with the block.

    The folder is beside `target`. A table of a catalog has the path of a copy that the block itself writes,
    if it can (`has_tables`). A `TurretError` of the block names the URLs and not the copies. Raises
    SourceError for a URL with nothing at it, for a table that the block can't write, and as `Objects` does,
    and FetchError as `download` does.
    """
    copies = dict[Place, Path]()
    with temporary_folder(target.parent / f".{target.name}.{uuid.uuid4().hex}.new") as folder:
        for url in urls:
            if url.startswith(TABLE):
                if not has_tables:
                    raise SourceError(
                        f"{url} is a table of a catalog, which Spark reads; name it with --engine"
                    )
                copies[url] = folder / str(len(copies))
                continue
            if is_web(url):
                copies[url] = folder / str(len(copies)) / file_name(url)
                copies[url].parent.mkdir()
                download(url, copies[url])
                continue
            objects = Objects(url)
            sizes = objects.sizes()
            if not sizes:
                raise SourceError(f"there is no object at or below {url}; check the bucket and the path")
            copies[url] = folder / str(len(copies)) / objects.url.rpartition("/")[2]
            objects.download(sizes, copies[url])
        with naming(copies):
            yield copies


@contextmanager
def naming(copies: Mapping[Place, Path]) -> Iterator[None]:
    """Let a `TurretError` of the block name the places of `copies` and not the copies."""
    try:
        yield
    except TurretError as error:
        error.args = tuple(with_urls(part, copies) if isinstance(part, str) else part for part in error.args)
        raise


def with_urls(sentence: str, copies: Mapping[Place, Path]) -> str:
    """Return a sentence, or a path, with URLs in place of their copies."""
    for url, copy in copies.items():
        sentence = sentence.replace(copy.as_posix(), without_credentials(str(url).rstrip("/")))
    return sentence


@contextmanager
def new_prepared(place: str, overwrite: bool) -> Iterator[Path]:
    """Yield the path of a new folder of prepared data: `place`, or a folder that is copied to that URL.

    Raises DataError for prepared data that is there already, unless `overwrite` is true, and SourceError as
    `Objects` does.
    """
    if not is_url(place):
        yield Path(place)
        return
    objects = Objects(place)
    if MANIFEST in objects.sizes() and not overwrite:
        raise DataError(f"{place} exists already; choose another address, or replace it with --overwrite")
    with scratch_folder() as work:
        folder = work / objects.url.rpartition("/")[2]
        yield folder
        _write(objects, folder)


@contextmanager
def changed_prepared(place: str) -> Iterator[Path]:
    """Yield the folder of prepared data to be changed: `place`, or a copy that replaces that URL at the end.

    Raises FetchError for prepared data that can't be fetched whole, DataError for data that another command
    has changed meanwhile, and SourceError as `Objects` does.
    """
    if not is_url(place):
        yield Path(place)
        return
    objects = Objects(place)
    with scratch_folder() as work:
        folder = fetch_prepared(place, work)
        before = DataManifest.load(folder)
        yield folder
        if _manifest(objects) != before:
            raise DataError(f"another command has changed {place} meanwhile; run this one again")
        _write(objects, folder)


def fetch_prepared(url: str, target: Path) -> Path:
    """Copy the prepared data below `url` to a folder of its name in `target`, and return the folder.

    A folder with the same data stays as it is; a folder with other data is replaced, with all files in it.
    Raises FetchError for objects that are no prepared data or do not match their manifest, DataError for
    another folder of this name, and SourceError as `Objects` does.
    """
    objects = Objects(url)
    manifest, folder = _manifest(objects), target / objects.url.rpartition("/")[2]
    if _is_there(folder, manifest):
        return folder
    files = Objects(f"{objects.url}/{manifest.fingerprint}")
    sizes = files.sizes()
    if missing := manifest.files.keys() - sizes.keys():
        raise FetchError(f"{url} lacks {min(missing)}, which its manifest names; write it again")
    with new_folder(folder, overwrite=(folder / MANIFEST).is_file()) as fresh:
        files.download({name: sizes[name] for name in manifest.files}, fresh)
        if hash_files(fresh) != manifest.files:
            raise FetchError(
                f"objects of {url} are not those of its manifest; fetch them, or write them, again"
            )
        manifest.save(fresh)
    return folder


def _manifest(objects: Objects) -> DataManifest:
    sizes = objects.sizes()
    if MANIFEST not in sizes:
        raise FetchError(
            f"{objects.url} is not prepared data: it has no {MANIFEST}; "
            f"`turret data prepare ... --to {objects.url}` writes it"
        )
    with scratch_folder() as work:
        objects.download({MANIFEST: sizes[MANIFEST]}, work)
        return DataManifest.load(work)


def _is_there(folder: Path, manifest: DataManifest) -> bool:
    """Tell whether `folder` has the data of `manifest`; other files in it do not count."""
    try:
        return DataManifest.load(folder) == manifest and manifest.files.items() <= hash_files(folder).items()
    except DataError:  # there is no manifest, or it can't be read
        return False


def _write(objects: Objects, folder: Path) -> None:
    """Write prepared data, and remove older data and the remains of an interrupted command."""
    manifest = DataManifest.load(folder)
    objects.upload({f"{manifest.fingerprint}/{name}": folder / name for name in manifest.files})
    objects.upload({MANIFEST: folder / MANIFEST})
    others = (name for name in objects.sizes() if not name.startswith(manifest.fingerprint))
    objects.remove([name for name in others if _OF_DATA.match(name)])
