"""Members of a service in this process: worker processes that share a record, by virtual time."""

import asyncio
import json
import os
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from turret.service.errors import ReplicasUnavailableError
from turret.service.observing.metrics import Metrics
from turret.service.overlay.item_overlay_cache import ItemOverlayCache
from turret.service.settings import Settings
from turret.service.stores.sqlite.shared import SqliteItems, SqliteRecords
from turret.service.versions.activation import Activator, Swap
from turret.service.versions.folder import first_record, keep_record, record_of
from turret.service.versions.follower import Follower
from turret.service.versions.gate import run_gate
from turret.service.versions.gate_report import GateReport, GateRequest
from turret.service.versions.holder import ModelHolder
from turret.service.versions.record import Activation, Record, Route, Routes, read_record

CANARY = Routes(canary=Route(version="v2", share=0.5))


def line(version: str, number: int | None = None, **more: Any) -> Activation:
    """A line of the log of activations."""
    given = {"time": "now", "who": "ann", "outcome": "activated"} | more
    return Activation(version=version, number=number, **given)


class Members:
    """Members on one folder, and the file of their record; while it `is_down`, their calls fail."""

    def __init__(self, root: Path, path: Path) -> None:
        self.root = root
        self.path = path
        self.is_down = False
        SqliteRecords(path)  # makes it

    async def join(self, name: str = f"a:8000/{os.getpid()}", **settings: Any) -> "Member":
        """A member that has joined."""
        member = Member(self, name, **settings)
        await member.follower.join()
        return member

    async def first(self, waits: bool = False, root: Path | None = None) -> Record | None:
        """The record that a further service begins with."""
        return await first_record(root or self.root, MemberRecords(self), waits)

    @property
    def stored(self) -> bytes:
        """The record as it is stored."""
        with closing(sqlite3.connect(self.path)) as file:
            return bytes(file.execute("SELECT record FROM state").fetchone()[0])

    @property
    def record(self) -> Record:
        """The record, which is there."""
        record = read_record(self.stored)
        assert record is not None
        return record

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The lines of the log in the folder."""
        return [json.loads(line) for line in (self.root / "activations.jsonl").read_text().splitlines()]

    def write(self, record: bytes = b"") -> None:
        """Replace the record by another one, or lose it, as a database that is flushed or restored."""
        with closing(sqlite3.connect(self.path)) as file, file:
            file.execute("UPDATE state SET revision = revision + 1, record = ?", (record,))
            file.execute("DELETE FROM members WHERE ? = x''", (record,))

    def route(self, routes: Routes) -> None:
        """Let a service that begins with the folder have these routes."""
        keep_record(self.root, record_of(self.root).routed(routes))

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

    def __init__(self, members: Members) -> None:
        super().__init__(members.path, asyncio.get_running_loop().time)
        self._members = members
        self.is_cut_off = False
        for database in (self._reader, self._writer):
            setattr(database, "run", self._checked(database.run))  # noqa: B010 - a method

    def _checked(self, run: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        async def checked(work: Any) -> Any:
            if self.is_cut_off or self._members.is_down:
                raise ReplicasUnavailableError("the store is unavailable")
            return await run(work)

        return checked


class Member:
    """A worker: what it answers from, what follows the record, and what replaces it.

    It begins with `record`, by default the version of its folder `root`; with `waits` without one. Each check
    of a version takes the next of `delays` in seconds.
    """

    def __init__(
        self,
        members: Members,
        name: str,
        record: Record | None = None,
        waits: bool = False,
        is_shared: bool = False,
        root: Path | None = None,
        **settings: Any,
    ) -> None:
        self.root = root or members.root
        self.records = MemberRecords(members)
        self.holder = ModelHolder(self.root)
        if not waits:
            self.holder.begin(record or record_of(self.root))
        clock = asyncio.get_running_loop().time
        known = self.holder, self.records, name, ItemOverlayCache(SqliteItems()), Metrics()
        self.follower = Follower(*known, is_shared=is_shared, clock=clock)
        given = Settings(bundles=self.root, **{"overlap_minimum": 0, **settings})
        self.delays: list[float] = []
        self.activator = Activator(self.holder, self.follower, self.records, given, self._gate)

    async def activate(self, version: str, **more: Any) -> Swap:
        """Activate a version."""
        return await self.activator.activate(version, **more)

    async def follow(self, seconds: float) -> None:
        """Follow the record for some seconds."""
        following = asyncio.create_task(self.follower.follow())
        await asyncio.sleep(seconds)
        following.cancel()

    @property
    def version(self) -> str | None:
        """The version that answers."""
        return self.holder.version

    async def _gate(self, request: GateRequest) -> GateReport:
        await asyncio.sleep(self.delays.pop(0) if self.delays else 0)
        return run_gate(request)
