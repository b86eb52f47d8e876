"""The record of members in a file, by the clock of the event loop, with failures on demand."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from turret.service.errors import ReplicasUnavailableError
from turret.service.stores.sqlite.shared import SqliteRecords


class RecordServer:
    """The file that members share; while it `is_down`, every call of them fails."""

    def __init__(self, path: Path) -> None:
        self.path = path
        SqliteRecords(path)  # makes it
        self.is_down = False

    @property
    def record(self) -> bytes:
        """The record."""
        with closing(sqlite3.connect(self.path)) as file:
            return bytes(file.execute("SELECT record FROM state").fetchone()[0])

    def write(self, record: bytes = b"") -> None:
        """Replace the record by another one, or lose it, as a database that is flushed or restored."""
        with closing(sqlite3.connect(self.path)) as file, file:
            file.execute("UPDATE state SET revision = revision + 1, record = ?", (record,))
            file.execute("DELETE FROM members WHERE ? = x''", (record,))

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Let every call fail."""
        self.is_down = True
        try:
            yield
        finally:
            self.is_down = False


class MemberRecords(SqliteRecords):
    """The RecordStore of one member; once it `is_cut_off`, none of its calls reaches the others."""

    def __init__(self, server: RecordServer) -> None:
        super().__init__(server.path, asyncio.get_running_loop().time)
        self._server = server
        self.is_cut_off = False
        for database in (self._reader, self._writer):
            setattr(database, "run", self._checked(database.run))  # noqa: B010 - a method

    def _checked(self, run: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        async def checked(work: Any) -> Any:
            if self.is_cut_off or self._server.is_down:
                raise ReplicasUnavailableError("the store is unavailable")
            return await run(work)

        return checked
