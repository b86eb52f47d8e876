"""The files of the page: read and compressed at the first request, named by the hash of all of them."""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"
PREFIX = "/page/"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
_COMPRESSED = frozenset({".css", ".html", ".js", ".svg", ".txt"})
_HASH_DIGITS = 16


@dataclass(frozen=True)
class Asset:
    """A file of the page, and its gzip form if that is smaller."""

    content: bytes
    media_type: str
    compressed: bytes | None = None

    @property
    def sent_bytes(self) -> int:
        """The bytes that a browser receives."""
        return len(self.content if self.compressed is None else self.compressed)


@dataclass(frozen=True)
class Assets:
    """The start page, and all other files by their path, which begins with the hash."""

    index: Asset
    files: dict[str, Asset]
    digest: str


@cache
def page_assets(folder: Path = STATIC) -> Assets:
    """Read all files of the page.

    Links of `index.html` below `/page/` get the hash of all files, so that browsers may keep them forever.
    """
    paths = sorted(path for path in folder.rglob("*") if path.suffix in _TYPES)
    contents = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    digest = _digest(contents)
    index = contents.pop("index.html").replace(PREFIX.encode(), f"{PREFIX}{digest}/".encode())
    files = {f"{digest}/{name}": _asset(name, content) for name, content in contents.items()}
    return Assets(_asset("index.html", index), files, digest)


def _digest(contents: dict[str, bytes]) -> str:
    whole = hashlib.sha256()
    for name, content in contents.items():
        whole.update(f"{name}\0{len(content)}\0".encode() + content)
    return whole.hexdigest()[:_HASH_DIGITS]


def _asset(name: str, content: bytes) -> Asset:
    suffix = Path(name).suffix
    compressed = gzip.compress(content, mtime=0) if suffix in _COMPRESSED else None
    return Asset(content, _TYPES[suffix], compressed)
