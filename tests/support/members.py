"""Members of a service in this process: worker processes that share a record, by virtual time."""

import asyncio
import os
from pathlib import Path
from typing import Any

from tests.support.member_records import MemberRecords, RecordServer
from turret.service.observing.metrics import Metrics
from turret.service.settings import Settings
from turret.service.versions.activation import Activator, Swap
from turret.service.versions.folder import keep_record, record_of
from turret.service.versions.follower import Follower
from turret.service.versions.gate import GateReport, GateRequest, run_gate
from turret.service.versions.holder import ModelHolder
from turret.service.versions.record import ItemsNumber, Record, Routes

HERE = os.getpid()


class Member:
    """A worker: what it answers from, what follows the record, and what replaces it.

    It begins with `record`, by default the version of the folder; with `waits` without one. Each check of a
    version takes the next of `delays` in seconds.
    """

    def __init__(
        self,
        root: Path,
        server: RecordServer,
        name: str = f"a:8000/{HERE}",
        record: Record | None = None,
        waits: bool = False,
        is_shared: bool = False,
        **settings: Any,
    ) -> None:
        self.root = root
        self.name = name
        self.records = MemberRecords(server)
        self.holder = ModelHolder(root)
        if not waits:
            self.holder.begin(record or record_of(root))
        self.items = ItemsNumber()
        self.metrics = Metrics()
        clock = asyncio.get_running_loop().time
        self.follower = Follower(
            self.holder, self.records, name, self.items, self.metrics, is_shared=is_shared, clock=clock
        )
        given = {"overlap_minimum": 0, **settings}
        self.delays: list[float] = []
        self.activator = Activator(
            self.holder, self.follower, self.records, Settings(bundles=root, **given), self._gate
        )

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


def route_in(root: Path, routes: Routes) -> None:
    """Let a service that begins with a folder have these routes."""
    keep_record(root, record_of(root).routed(routes))


async def joined(root: Path, server: RecordServer, *arguments: Any, **settings: Any) -> Member:
    """A member that has joined."""
    member = Member(root, server, *arguments, **settings)
    await member.follower.join()
    return member
