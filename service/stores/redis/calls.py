"""What a single Redis and a Redis Cluster have in common for the stores: their calls and their errors."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from typing import Any

from redis import exceptions

from turret.service.errors import HistoryDamagedError, HistoryUnavailableError
from turret.service.stores.redis.address import RedisAddress

Command = Sequence[bytes | str | int]
Call = tuple[Sequence[str], Command]  # the keys and the values of one run of a script

_OF_CLUSTER = (
    exceptions.AskError,
    exceptions.ClusterCrossSlotError,
    exceptions.ClusterDownError,
    exceptions.TryAgainError,
)
_NO_CLUSTER = "cluster support disabled"


class RedisCalls(ABC):
    """Commands and scripts at an address. `seconds` bounds each call with all its waits."""

    def __init__(self, address: RedisAddress, seconds: float) -> None:
        self._address = address
        self._seconds = seconds

    def __str__(self) -> str:
        return str(self._address)

    @abstractmethod
    async def execute(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands and return their replies; an error reply is returned as a value.

        The second word of each is its key. After a lost connection they are sent once more, so each may run
        twice. Raises HistoryUnavailableError.
        """

    @abstractmethod
    async def run_all(self, script: str, calls: Sequence[Call], is_write: bool = True) -> list[Any]:
        """Run a Lua script for each of `calls`, each atomically, and return the replies.

        In a cluster the keys of a call are in one slot. A write is confirmed by the address's number of
        replicas. Raises HistoryUnavailableError, also where too few replicas confirm, and
        HistoryDamagedError; then any of the calls may have run.
        """

    @abstractmethod
    async def masters(self) -> Mapping["RedisCalls", Hashable]:
        """The servers that together hold all keys, and of each a value that changes with its slots.

        Raises HistoryUnavailableError.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close all connections."""

    async def run(self, script: str, keys: Sequence[str], values: Command, is_write: bool = True) -> Any:
        """Run a Lua script once; see `run_all`."""
        return (await self.run_all(script, [(keys, values)], is_write))[0]

    def count(self, reply: Any) -> int:
        """Check that a reply is a count. Raises HistoryUnavailableError."""
        if isinstance(reply, exceptions.ResponseError):
            raise self.unavailable(reply)
        if type(reply) is not int or reply < 0:
            raise HistoryUnavailableError(f"{self._address} sends replies that are not a Redis's")
        return reply

    def unavailable(self, error: Exception) -> HistoryUnavailableError:
        """Make the error of a failed call; WRONGTYPE concerns one key, not the server."""
        reason = " ".join(str(error).split())
        if reason.startswith("WRONGTYPE"):
            return self.damaged()
        scheme = f"redis{'s' * self._address.tls}"
        if isinstance(error, _OF_CLUSTER) and not self._address.nodes:
            return HistoryUnavailableError(
                f"{self._address} is a node of a Redis Cluster; name it {scheme}+cluster://HOST:PORT"
            )
        if _NO_CLUSTER in reason:
            return HistoryUnavailableError(
                f"{self._address} is no Redis Cluster but a single Redis; name it {scheme}://HOST:PORT"
            )
        reason = reason or f"no reply within {self._seconds:g} seconds"
        return HistoryUnavailableError(f"{self._address} unavailable: {reason.rstrip('.')}")

    def damaged(self) -> HistoryDamagedError:
        """Make the error of a key with foreign data."""
        return HistoryDamagedError(
            f"{self._address} has a key {self._address.prefix}* that is no history; delete it, or choose "
            f"another {'' if self._address.nodes else 'database or '}prefix"
        )

    def raise_for_errors(self, replies: Sequence[Any]) -> None:
        """Raise the error of the first error reply."""
        for reply in replies:
            if isinstance(reply, exceptions.ResponseError):
                raise self.unavailable(reply)

    def wait(self, is_write: bool) -> list[Command]:
        """The command that waits for the replicas; none where none are asked for."""
        replicas = self._address.replicas if is_write else 0
        return [["WAIT", replicas, round(self._seconds * 500)]] if replicas else []

    def check_confirmed(self, reply: Any) -> None:
        """Check the reply to `wait`. Raises HistoryUnavailableError."""
        if self.count(reply) < self._address.replicas:
            raise HistoryUnavailableError(
                f"{self._address} has stored it, but fewer than {self._address.replicas} replicas have "
                "confirmed"
            )


def by_digest(script: str, call: Call) -> Command:
    """The command that runs a script that the server has seen before."""
    keys, values = call
    return ["EVALSHA", _sha1(script), len(keys), *keys, *values]


def in_full(script: str, call: Call) -> Command:
    """The command that runs a script that the server may not have seen."""
    keys, values = call
    return ["EVAL", script, len(keys), *keys, *values]


@cache
def _sha1(script: str) -> str:
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
