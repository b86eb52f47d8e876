"""Local copies of a log in an object store: fetched before it is read, removed after."""

import uuid
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from turret.data.errors import SourceError
from turret.data.files import temporary_folder
from turret.data.object_stores.naming import naming_urls, with_urls
from turret.data.object_stores.objects import Objects
from turret.data.object_stores.place import Place, is_url


class LocalCopies:
    """A context with the local copies of URLs, in a hidden folder beside `target` that its end removes.

    A `TurretError` of the block names the URLs and not the copies.
    """

    def __init__(self, target: Path) -> None:
        self._folder = target.parent / f".{target.name}.{uuid.uuid4().hex}.new"
        self._copies: dict[str, Path] = {}
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        self._closing.enter_context(naming_urls(self._copies))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.__exit__(kind, error, trace)

    def path(self, place: Place) -> Path:
        """Return the path of a file or folder; a URL is copied first.

        Raises SourceError for a URL with nothing at it, and as `Objects` does.
        """
        if not is_url(place):
            return Path(place)
        if place not in self._copies:
            objects = Objects(place)
            sizes = objects.sizes()
            if not sizes:
                raise SourceError(f"there is no object at or below {place}; check the bucket and the path")
            if not self._copies:
                self._closing.enter_context(temporary_folder(self._folder))
            copy = self._folder / str(len(self._copies)) / objects.url.rpartition("/")[2]
            objects.download(sizes, copy)
            self._copies[place] = copy
        return self._copies[place]

    def name(self, path: Path) -> str:
        """Return the URL of a copy, or of a file in a copied folder; another path as it is."""
        return self.named(path.as_posix())

    def named(self, sentence: str) -> str:
        """Return a sentence with URLs in place of copies."""
        return with_urls(sentence, self._copies)
