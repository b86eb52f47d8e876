"""Pooled connections to a Redis: commands and scripts in one round trip, failures as one kind of error.

They take a third to a half of the processor time of redis-py's pool and pipelines (docs/reliability.md), and
no second round trip for SCRIPT EXISTS.
"""

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from redis import exceptions
from redis.asyncio import Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from turret.service.stores.redis.address import RedisAddress
from turret.service.stores.redis.calls import Call, Command, RedisCalls, by_digest, in_full

# The server has refused: another connection would not help.
REFUSALS = (exceptions.AuthenticationError, exceptions.BusyLoadingError, exceptions.AuthorizationError)
# What `send` raises of a server that is not there, hangs, or is no Redis.
FAILURES = (exceptions.RedisError, OSError, EOFError, ValueError)


class RedisConnections(RedisCalls):
    """Up to `size` connections to one Redis, opened when needed; further calls wait for one.

    A connection with an error or a cancelled caller is closed, so that no call reads another's reply.
    """

    def __init__(self, address: RedisAddress, size: int, seconds: float) -> None:
        super().__init__(address, seconds)
        self._idle: list[Any] = []
        self._free = asyncio.Semaphore(size)

    async def send(self, commands: Sequence[Command]) -> list[Any]:
        """Like `execute`, on one connection; raises one of FAILURES."""
        async with asyncio.timeout(self._seconds), self._free:
            try:
                return await self._exchange(commands, self._idle.pop() if self._idle else None)
            except exceptions.ConnectionError as error:
                if isinstance(error, REFUSALS):
                    raise
                return await self._exchange(commands, None)

    async def execute(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands together; see RedisCalls."""
        try:
            return await self.send(commands)
        except FAILURES as error:
            raise self.unavailable(error) from None

    async def run_all(self, script: str, calls: Sequence[Call], is_write: bool = True) -> list[Any]:
        """Run a script for each call in one round trip; see RedisCalls."""
        wait = self.wait(is_write)
        replies = await self.execute([*(by_digest(script, call) for call in calls), *wait])
        unknown = [
            index for index, reply in enumerate(replies) if isinstance(reply, exceptions.NoScriptError)
        ]
        if unknown:  # the server has restarted since
            again = await self.execute([*(in_full(script, calls[index]) for index in unknown), *wait])
            for index, reply in zip([*unknown, *range(len(calls), len(replies))], again, strict=True):
                replies[index] = reply
        self.raise_for_errors(replies)
        for waited in replies[len(calls) :]:
            self.check_confirmed(waited)
        return replies[: len(calls)]

    async def masters(self) -> Mapping[RedisCalls, Hashable]:
        """This one server; see RedisCalls."""
        return {self: None}

    async def close(self) -> None:
        """Close all connections."""
        while self._idle:
            await self._idle.pop().disconnect()

    async def _exchange(self, commands: Sequence[Command], connection: Any | None) -> list[Any]:
        connection = connection or self._new()
        try:
            await connection.connect()  # returns at once if connected
            await connection.send_packed_command(connection.pack_commands(commands))
            replies = [await _reply(connection) for _ in commands]
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        self._idle.append(connection)
        return replies

    def _new(self) -> Any:
        kind: Any = SSLConnection if self._address.tls else Connection
        return kind(
            host=self._address.host,
            port=self._address.port,
            db=self._address.database,
            username=self._address.username,
            password=self._address.password,
            socket_timeout=None,  # `send` bounds connecting and reading together
            socket_connect_timeout=None,
            socket_keepalive=True,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
        )


async def _reply(connection: Any) -> Any:
    try:
        return await connection.read_response()
    except exceptions.ResponseError as error:
        return error
