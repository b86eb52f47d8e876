"""The objects below a URL, read and written through fsspec and the driver of the URL's scheme."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from turret.data.errors import MissingExtraError, SourceError
from turret.data.extras import install_command

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

# The extra with the driver of a scheme.
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}


class Objects:
    """The object at `url`, or the objects below it, by their names relative to it ("" for itself).

    All methods raise SourceError for a store that refuses or does not answer.
    """

    def __init__(self, url: str) -> None:
        """Raises SourceError for an unknown scheme and MissingExtraError without its driver."""
        self.url = url.rstrip("/")
        self._store, self._path = _opened(self.url)

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
            found = self._store.find(self._path, detail=True)
        below = len(self._path.rstrip("/")) + 1
        # A name that ends with a slash marks a folder.
        return {path[below:]: entry["size"] for path, entry in found.items() if not path.endswith("/")}

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
                raise SourceError(f"{self._named(name)} has changed while it was read; run the command again")

    def upload(self, folder: Path, names: Sequence[str]) -> None:
        """Write the files of `folder` with these names as objects."""
        with self._sentences("written"):
            self._store.put([str(folder / name) for name in names], list(map(self._at, names)))

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects."""
        if names:
            with self._sentences("written"):
                self._store.rm(list(map(self._at, names)))

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}" if name else self._path

    def _named(self, name: str) -> str:
        return f"{self.url}/{name}" if name else self.url

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


def _opened(url: str) -> tuple["AbstractFileSystem", str]:
    scheme = url.partition("://")[0].lower()
    try:
        import fsspec

        if scheme not in fsspec.available_protocols() or scheme in ("file", "local"):
            raise SourceError(f"{url}: {scheme}:// is no object store; use s3:// or gs://, or a path")
        store, path = fsspec.url_to_fs(url)
    except ImportError as error:
        extra = _EXTRAS.get(scheme)
        remedy = f"run: {install_command(extra)}" if extra else f"install it ({error})"
        raise MissingExtraError(f"{url} needs a driver that is not installed; {remedy}") from None
    except (ValueError, OSError) as error:
        raise SourceError(f"{url} can't be opened: {error}; check the address") from error
    return store, path
