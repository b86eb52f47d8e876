"""Agreement on the live version: the steps of an activation that depend on whether there are replicas."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from turret.service.shared_state import SharedState
from turret.service.versions.activation_log import ActivationLog, ActivationRecord
from turret.service.versions.activation_state import commit
from turret.service.versions.traffic_split import Routes, write_routes
from turret.tower.format.snapshot import Snapshot


class Coordination(Protocol):
    """Makes an activation or routes those of the whole service.

    The commits are made within a `turn`, and have no effect when they raise BundleError or ServiceError.
    """

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Wait for the exclusive right to commit, and update this replica to the last commit of all."""

    async def commit(self, record: ActivationRecord, snapshot: Snapshot) -> int:
        """Move the pointer, log the activation, and make it the target; return its number."""

    async def commit_routes(self, routes: Routes) -> int:
        """Store the routes and return their number."""

    async def behind(self, number: int, routes: int, seconds: float) -> tuple[str, ...]:
        """Wait until all other replicas serve these numbers; return the names of those that don't in time."""


class Alone:
    """The Coordination of a service that has no other replica."""

    def __init__(self, root: Path, activation_log: ActivationLog, shared_state: SharedState) -> None:
        self._root = root
        self._activation_log = activation_log
        self._shared_state = shared_state

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """The lock on the folder suffices."""
        yield

    async def commit(self, record: ActivationRecord, snapshot: Snapshot) -> int:
        """Commit on the folder and in the shared state; see Coordination."""
        return await asyncio.to_thread(
            commit, self._root, self._activation_log, self._shared_state, record, snapshot
        )

    async def commit_routes(self, routes: Routes) -> int:
        """Write the file and raise the generation; see Coordination."""
        await asyncio.to_thread(write_routes, self._root, routes)
        return self._shared_state.routes.bump()

    async def behind(self, number: int, routes: int, seconds: float) -> tuple[str, ...]:
        """There is no other replica."""
        return ()
