"""Calls to a Redis for the stores: commands and scripts in one round trip, failures as one kind of error."""

import asyncio
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from typing import Any

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from turret.service.errors import HistoryDamagedError, HistoryUnavailableError
from turret.service.stores.redis.address import RedisAddress

Command = Sequence[bytes | str | int]
Call = tuple[Sequence[str], Command]  # the keys and the values of one run of a script

# What a client raises of a server that is not there, hangs, or is no Redis.
FAILURES = (exceptions.RedisError, exceptions.RedisClusterException, OSError, EOFError, ValueError)
_OF_CLUSTER = (
    exceptions.AskError,
    exceptions.ClusterCrossSlotError,
    exceptions.ClusterDownError,
    exceptions.TryAgainError,
)
_NO_CLUSTER = "Cluster mode is not enabled"


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
    async def masters(self) -> Mapping[str, Hashable]:
        """The servers that hold all keys: their names, each with a value that changes with its slots.

        Raises HistoryUnavailableError.
        """

    @abstractmethod
    async def ask(self, master: str, commands: Sequence[Command]) -> list[Any]:
        """Like `execute`, but all commands go to one of the `masters`."""

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


class SingleRedis(RedisCalls):
    """Up to `size` connections to one Redis, opened when needed; further calls wait for one."""

    def __init__(self, address: RedisAddress, size: int, seconds: float) -> None:
        super().__init__(address, seconds)
        self._free = asyncio.Semaphore(size)
        retry = Retry(NoBackoff(), 1)
        self._redis = Redis(
            host=address.host, port=address.port, db=address.database, retry=retry, **options(address, size)
        )
        self._redis.response_callbacks.clear()  # one that fails would leave replies on the connection

    async def execute(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands together; see RedisCalls."""
        pipeline = self._redis.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        try:
            async with asyncio.timeout(self._seconds), self._free:
                return await pipeline.execute(raise_on_error=False)
        except FAILURES as error:
            raise self.unavailable(error) from None

    async def run_all(self, script: str, calls: Sequence[Call], is_write: bool = True) -> list[Any]:
        """Run a script for each call in one round trip; see RedisCalls."""
        wait = self.wait(is_write)
        replies = await self.execute([*(by_digest(script, call) for call in calls), *wait])
        if any(isinstance(reply, exceptions.NoScriptError) for reply in replies):  # it has restarted since
            replies = await self.execute([*(in_full(script, call) for call in calls), *wait])
        self.raise_for_errors(replies)
        for waited in replies[len(calls) :]:
            self.check_confirmed(waited)
        return replies[: len(calls)]

    async def masters(self) -> Mapping[str, Hashable]:
        """This one server; see RedisCalls."""
        return {str(self): None}

    async def ask(self, master: str, commands: Sequence[Command]) -> list[Any]:
        """Send commands to the server; see RedisCalls."""
        return await self.execute(commands)

    async def close(self) -> None:
        """Close all connections."""
        await self._redis.aclose()


def options(address: RedisAddress, size: int) -> dict[str, Any]:
    """The settings of a client; `RedisCalls` bounds its times, and its `size` connections.

    The client itself may have twice as many, as one of a cancelled call is returned late.
    """
    return {
        "username": address.username,
        "password": address.password,
        "ssl": address.tls,
        "max_connections": 2 * size,
        "socket_timeout": None,
        "socket_connect_timeout": None,
        "protocol": 2,
    }


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
