"""Which process has the other end of a connection (Linux)."""

import os
import socket
from collections.abc import Iterable
from contextlib import suppress


def owner(connection: socket.socket, pids: Iterable[int]) -> int | None:
    """Return which of the processes holds the other end of a connection over IPv4, if one does."""
    ours, theirs = connection.getsockname()[1], connection.getpeername()[1]
    inode = _inode(local=theirs, remote=ours)
    if inode is None:
        return None
    return next((pid for pid in pids if inode in inodes(pid)), None)


def inodes(pid: int) -> set[int]:
    """The inodes of all sockets that a process has open."""
    found = set()
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                place = os.readlink(f"/proc/{pid}/fd/{name}")
                if place.startswith("socket:["):
                    found.add(int(place[8:-1]))
    return found


def listening_inodes(ports: Iterable[int]) -> set[int]:
    """The inodes of the sockets that listen on these ports."""
    wanted = set(ports)
    return {inode for local, _, state, inode in _table() if state == "0A" and local in wanted}


def _inode(local: int, remote: int) -> int | None:
    return next((inode for ours, theirs, _, inode in _table() if (ours, theirs) == (local, remote)), None)


def _table() -> Iterable[tuple[int, int, str, int]]:
    with open("/proc/net/tcp", encoding="ascii") as table:
        next(table)
        for line in table:
            fields = line.split()
            local, remote = (int(fields[place].rpartition(":")[2], 16) for place in (1, 2))
            yield local, remote, fields[3], int(fields[9])
