"""Safe opening of untrusted files: no links, no pipes, no devices."""

import os
import stat
from io import BufferedReader
from pathlib import Path

from turret.tower.errors import BundleError


def size_of(path: Path) -> int:
    """The bytes of a regular file, without opening it.

    Raises BundleError when it is missing, a link, a folder, a pipe or a device.
    """
    try:
        status = os.lstat(path)
    except OSError as error:
        raise BundleError(f"{path} can't be read: {error.strerror}; copy it again", "unknown") from None
    if not stat.S_ISREG(status.st_mode):
        raise BundleError(
            f"{path} is no regular file; a bundle holds neither links nor anything else: copy it again",
            "checksum",
        )
    return status.st_size


def check_folder(path: Path) -> None:
    """Raise BundleError unless `path` is a folder and not a link, whose target may change."""
    try:
        status = os.lstat(path)
    except OSError as error:
        raise BundleError(f"{path} can't be read: {error.strerror}", "unknown") from None
    if not stat.S_ISDIR(status.st_mode):
        raise BundleError(f"{path} is no folder but a link or a file; copy the folder there")


def no_link(path: str, flags: int) -> int:
    """An `opener` for `open` that raises OSError for a link."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; never waits for a pipe's writer. Raises BundleError as `size_of`."""
    size_of(path)  # opening a device may have effects
    try:
        return open(path, "rb", opener=no_link)
    except OSError as error:
        raise BundleError(f"{path} can't be read: {error.strerror}; copy it again", "unknown") from None


def read_regular(path: Path, limit: int) -> bytes:
    """Read a whole file of at most `limit` bytes. Raises BundleError as `size_of`, or if it is larger."""
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        # A read allocates its argument, so the limit itself must not be the argument.
        content = stream.read(size + 1) if size <= limit else b""
    if size > limit or len(content) > limit:
        raise BundleError(f"{path} is larger than the limit of {limit} bytes; copy it again")
    return content
