"""Prepared data in object stores: written with its manifest last, fetched by the digests of its manifest."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from turret.data.errors import DataError, FetchError, SourceError, text_without_credentials
from turret.data.files import new_folder
from turret.data.manifest import MANIFEST, Manifest, hash_all, hash_files
from turret.data.object_stores.naming import naming_urls
from turret.data.object_stores.objects import Objects
from turret.data.object_stores.place import is_url


@contextmanager
def new_prepared(place: str, overwrite: bool) -> Iterator[Path]:
    """Yield the path of a new folder of prepared data: `place`, or one written below that URL at the end.

    The manifest is removed first and written last: data with a manifest is complete. Raises DataError for
    objects that are there already, unless they are prepared data and `overwrite` is true, and SourceError for
    a store that can't be written.
    """
    if not is_url(place):
        yield Path(place)
        return
    objects = Objects(place)
    old = objects.sizes()
    if old and MANIFEST not in old:
        raise DataError(f"{place} has objects that are not prepared data; choose another address")
    if old and not overwrite:
        raise DataError(f"{place} exists already; choose another address, or replace it with --overwrite")
    with tempfile.TemporaryDirectory(prefix="turret-") as work:
        folder = Path(work) / objects.url.rpartition("/")[2]
        with naming_urls({place: folder}):
            yield folder
        _write_or_keep(objects, folder, list(old))


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
    with tempfile.TemporaryDirectory(prefix="turret-") as work:
        folder = fetch_prepared(place, Path(work))
        before = Manifest.load(folder).fingerprint
        with naming_urls({place: folder}):
            yield folder
        if MANIFEST not in (old := objects.sizes()) or _manifest(objects, old).fingerprint != before:
            raise DataError(f"another command has changed {place} meanwhile; run this one again")
        _write_or_keep(objects, folder, list(old))


def upload_prepared(folder: Path, url: str, overwrite: bool) -> None:
    """Write the prepared data of `folder` below `url`; objects of an interrupted upload are replaced.

    Raises DataError for a folder that is not whole, and for prepared data at `url` unless `overwrite` is
    true, and SourceError as `Objects` does.
    """
    if not _is_there(folder, manifest := Manifest.load(folder)):
        raise DataError(f"the files of {folder} are not those of its manifest; prepare the data again")
    objects = Objects(url)
    old = objects.sizes()
    if MANIFEST in old and not overwrite:
        raise DataError(f"{url} exists already; choose another address, or replace it with --overwrite")
    # Without a manifest, no one knows whose the other objects are.
    _write(objects, folder, [*manifest.files, MANIFEST], list(old) if MANIFEST in old else [])


def fetch_prepared(url: str, target: Path) -> Path:
    """Copy the prepared data below `url` to a folder of its name in `target`, and return that.

    A folder with the same data stays as it is; one with other data is replaced, with all files in it. Raises
    FetchError for objects that are no prepared data or do not match their manifest, DataError for another
    folder of this name, and SourceError as `Objects` does.
    """
    objects = Objects(url)
    sizes = objects.sizes()
    if MANIFEST not in sizes:
        raise FetchError(
            f"{url} is not prepared data: it has no {MANIFEST}; "
            f"`turret data prepare ... --to {url}` writes it"
        )
    folder = target / objects.url.rpartition("/")[2]
    if _is_there(folder, _manifest(objects, sizes)):
        return folder
    overwrite = (folder / MANIFEST).is_file()
    with new_folder(folder, overwrite) as fresh, naming_urls({url: fresh}):
        objects.download({MANIFEST: sizes[MANIFEST]}, fresh)
        manifest = Manifest.load(fresh)
        if missing := manifest.files.keys() - sizes.keys():
            raise FetchError(f"{url} lacks {min(missing)}, which its manifest names; write it again")
        objects.download({name: sizes[name] for name in manifest.files}, fresh)
        if hash_files(fresh) != manifest.files:
            raise FetchError(
                f"objects of {url} are not those of its manifest; fetch them, or write them, again"
            )
    return folder


def _manifest(objects: Objects, sizes: dict[str, int]) -> Manifest:
    with (
        tempfile.TemporaryDirectory(prefix="turret-") as work,
        naming_urls({objects.url: Path(work)}),
    ):
        objects.download({MANIFEST: sizes[MANIFEST]}, Path(work))
        return Manifest.load(Path(work))


def _is_there(folder: Path, manifest: Manifest) -> bool:
    """Tell whether `folder` has the data of `manifest`; other files in it do not count."""
    try:
        if Manifest.load(folder).fingerprint != manifest.fingerprint:
            return False
    except DataError:  # none, or one that can't be read
        return False
    files = {folder / name: file for name, file in manifest.files.items()}
    return all(path.is_file() for path in files) and hash_all(list(files)) == files


def _write_or_keep(objects: Objects, folder: Path, old: list[str]) -> None:
    """Write the folder; if that fails, move it to where it outlives the command, and name the place.

    The store may have neither the older nor the newer data whole by then.
    """
    names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
    try:
        _write(objects, folder, names, old)
    except BaseException as error:
        kept = Path(tempfile.mkdtemp(prefix="turret-kept-")) / folder.name
        folder.rename(kept)
        command = f"turret data upload {kept} --to {objects.url} --overwrite"
        sentence = f"the new data is whole in {kept}; write it by `{command}`, then remove the folder"
        if isinstance(error, SourceError):
            raise SourceError(f"{error}; {sentence}") from error
        print(f"turret: {text_without_credentials(sentence)}", file=sys.stderr)
        raise


def _write(objects: Objects, folder: Path, names: list[str], old: list[str]) -> None:
    objects.remove([name for name in old if name == MANIFEST])
    objects.upload(folder, [name for name in names if name != MANIFEST])
    objects.upload(folder, [MANIFEST])
    objects.remove([name for name in old if name not in names])
