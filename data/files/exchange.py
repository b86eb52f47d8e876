"""Exchange of two names of a file system in one step."""

import ctypes
from pathlib import Path

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # from fcntl.h and linux/fs.h


def exchange(first: Path, second: Path) -> bool:
    """Give each of two files or folders the name of the other, atomically; False where that is impossible.

    Linux has the call, for ext4, XFS, Btrfs and tmpfs; network file systems and other systems mostly lack it.
    """
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    if rename is None:
        return False
    names = (bytes(first.absolute()), bytes(second.absolute()))
    return bool(rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0)
