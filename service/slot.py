"""The place of the live bundle: taken once by a request, replaced as a whole."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from service.errors import NothingLiveError, ServiceError
from tower.bundle import Bundle, load
from tower.errors import BundleError
from tower.listing import versions
from tower.pointer import current, point
from tower.retriever import Retriever

POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Live:
    """One bundle and all that answers from it; whoever holds it answers from that version to the end."""

    bundle: Bundle
    retriever: Retriever
    since: datetime

    @property
    def version(self) -> str:
        """The bundle's version."""
        return self.bundle.manifest.version


class Swap(NamedTuple):
    """What became live, and the name of what it took the place of (None: of nothing)."""

    live: Live
    replaced: str | None


class Slot:
    """Holds the live bundle of a folder of bundles.

    Opens the current one. Raises ServiceError when there is none, BundleError when it is refused. With `wait`
    it begins empty, makes the folder if need be, and stays so until `fill` finds a version or one is
    activated.
    """

    def __init__(self, root: Path, wait: bool = False) -> None:
        if wait:
            _make(root)
        self._root = root
        self._live = None if wait else _open(root, _current(root))
        self._why_empty = "the service has just started"
        self._previous: str | None = None
        self._one_at_a_time = asyncio.Lock()

    @property
    def root(self) -> Path:
        """The folder of the bundles."""
        return self._root

    @property
    def live(self) -> Live:
        """What is live now; a request reads this once. Raises NothingLiveError when nothing is yet."""
        if self._live is None:
            raise NothingLiveError(f"no version is live yet: {self._why_empty}")
        return self._live

    @property
    def version(self) -> str | None:
        """The version that is live, if one is."""
        return self._live.version if self._live else None

    async def fill(self) -> None:
        """Make the current version live; while there is none, or it is refused, wait for another."""
        while self._live is None:
            async with self._one_at_a_time:
                if self._live is None:
                    self._live = await asyncio.to_thread(self._look)
            await asyncio.sleep(POLL_SECONDS)

    async def activate(self, version: str) -> Swap:
        """Load and check `version` beside the live one, move the `current` pointer, then swap.

        Activations queue. Raises BundleError, and leaves everything as it was, when the bundle is refused.
        """
        async with self._one_at_a_time:
            return await self._replace(version)

    async def roll_back(self) -> Swap:
        """Activate the version that was live before this one.

        Raises BundleError when this process has served no other, or that one is refused.
        """
        async with self._one_at_a_time:
            if self._previous is None:
                raise BundleError(
                    "no other version was live since the service started; activate one by its name"
                )
            return await self._replace(self._previous)

    async def _replace(self, version: str) -> Swap:
        live = await asyncio.to_thread(_open, self._root, version)
        await asyncio.to_thread(point, self._root, version)
        replaced = self.version
        if version != replaced:
            self._previous = replaced
        self._live = live
        return Swap(live, replaced)

    def _look(self) -> Live | None:
        try:
            return _open(self._root, _current(self._root))
        except (BundleError, ServiceError) as error:
            self._why_empty = str(error)
            return None


def _make(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ServiceError(
            f"the folder of bundles {root} can't be made: {error.strerror}; name another with --bundles"
        ) from None


def _current(root: Path) -> str:
    known = [one.version for one in versions(root)]
    version = current(root)
    if version is None:
        there = f"there are {', '.join(known)}: activate one" if known else "export one into it"
        raise ServiceError(f"the folder {root} holds no current version; {there}")
    return version


def _open(root: Path, version: str) -> Live:
    bundle = load(root, version)
    return Live(bundle, Retriever(bundle), datetime.now(UTC))
