"""Calls to a Redis or a Redis Cluster: commands and scripts in one round trip, failures as errors in words.

redis-py holds the connections to each server. Its client of clusters does not serve here: it sends ASKING,
the command and WAIT on different connections, so that a redirected write would be confirmed by the replicas
of another master.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot

from turret.service.errors import HistoryDamagedError, HistoryUnavailableError, ServiceError
from turret.service.stores.redis.address import Node, RedisAddress

Result = TypeVar("Result")
Command = Sequence[bytes | str | int]

# What a client raises of a server that is not there, hangs, or is no Redis.
_FAILURES = (exceptions.RedisError, OSError, EOFError, ValueError)
# Replies of a cluster that sends a command elsewhere, or asks for patience; MovedError is an AskError.
_REDIRECTIONS = (exceptions.AskError, exceptions.ClusterDownError, exceptions.TryAgainError)
_SLOTS = 16_384
_AT_ONCE = 2  # rounds without a pause: to the old master and to the new one
_LEAST_PAUSE, _MOST_PAUSE = 0.02, 0.2
# The slot map is not read again sooner: many calls meet a failed node at the same time.
_LEAST_AGE = 0.1


class Failures(NamedTuple):
    """The errors that a store raises, and how it says that a key has foreign data."""

    unavailable: type[ServiceError]
    damaged: type[ServiceError]
    foreign: str


HISTORIES = Failures(HistoryUnavailableError, HistoryDamagedError, "that is no history")


@dataclass(eq=False, slots=True)
class _Request:
    """One command: where it goes, and its reply, or why it has to be sent again."""

    command: Command
    slot: int
    asking: Node | None = None  # where this slot is being moved to, for this request alone
    reply: Any = None
    problem: Exception | None = None


class RedisClient:
    """Up to `size` connections to each server, opened when needed; further calls wait for one.

    `seconds` bounds each call with all its waits. In a cluster a command goes to the master of its slot; if
    the slot has moved, or the master is gone, it is sent again until `seconds` are over: a failover that
    takes less is only a delay. To a single Redis it is sent again once, after a lost connection. So each
    command may run more than once. Each method raises the `failures` of its store.
    """

    def __init__(
        self, address: RedisAddress, size: int, seconds: float, failures: Failures = HISTORIES
    ) -> None:
        self._address = address
        self._size = size
        self._seconds = seconds
        self._failures = failures
        self._servers: dict[Node, Redis] = {}
        self._free: defaultdict[Node, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(size))
        self._owners = {0: address.nodes[0]}  # the master of each slot, one of a single Redis
        self._is_stale = address.is_cluster
        self._failed: Node | None = None  # asked last for the next map
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    async def execute(self, commands: Sequence[Command], is_write: bool = False) -> list[Any]:
        """Send commands and return their replies; the first error reply is raised.

        The key is the second word of each, or the first key of a script. A write is confirmed by the
        address's number of replicas; too few are an error. After an error any of the commands may have run.
        """
        replicas = self._address.replicas if is_write else 0
        requests = [_Request(command, self._slot(command)) for command in commands]
        await self._within_time(self._send_all(requests, replicas), requests)
        replies = [request.reply for request in requests]
        self.raise_for_errors(replies)
        return replies

    async def run(self, script: str, keys: Sequence[str], values: Command, is_write: bool = True) -> Any:
        """Run a Lua script, atomically, and return its reply."""
        return (await self.execute([script_run(script, keys, values)], is_write))[0]

    async def masters(self) -> list[Node]:
        """The servers that hold all keys, as they are now."""
        self._is_stale = self._address.is_cluster
        owners = await self._within_time(self._map())
        missing = _SLOTS - len(owners)
        if missing and self._address.is_cluster:
            raise self.unavailable(exceptions.ClusterDownError(f"no node serves {missing} of its slots"))
        return [*dict.fromkeys(owners.values())]

    async def ask(self, master: Node, commands: Sequence[Command]) -> list[Any]:
        """Send commands to one of the `masters` and return the replies; an error reply is a value."""
        return await self._within_time(self._exchange(master, commands))

    async def close(self) -> None:
        """Close all connections."""
        for server in self._servers.values():
            await server.aclose()

    def unavailable(self, error: Exception) -> ServiceError:
        """Make the error of a failed call; WRONGTYPE concerns one key, not the server."""
        reason = " ".join(str(error).split())
        if "WRONGTYPE" in reason:
            return self.damaged()
        scheme = f"redis{'s' * self._address.options['ssl']}"
        of_cluster = (*_REDIRECTIONS, exceptions.ClusterCrossSlotError)
        if isinstance(error, of_cluster) and not self._address.is_cluster:
            reason = f"it is a node of a Redis Cluster; name it {scheme}+cluster://HOST:PORT"
        elif "cluster support disabled" in reason:
            reason = f"it is no Redis Cluster but a single Redis; name it {scheme}://HOST:PORT"
        reason = reason or f"no reply within {self._seconds:g} seconds"
        return self._failures.unavailable(f"{self._address} unavailable: {reason.rstrip('.')}")

    def damaged(self) -> ServiceError:
        """Make the error of a key with foreign data."""
        return self._failures.damaged(
            f"{self._address} has a key {self._address.prefix}* {self._failures.foreign}; delete it, or "
            f"choose another {'' if self._address.is_cluster else 'database or '}prefix"
        )

    def raise_for_errors(self, replies: Sequence[Any]) -> None:
        """Raise the error of the first error reply."""
        for reply in replies:
            if isinstance(reply, Exception):
                raise self.unavailable(reply)

    async def _within_time(
        self, call: Coroutine[Any, Any, Result], requests: Sequence[_Request] = ()
    ) -> Result:
        """Wait for a call; at the end of the time the error is the problem of a request, if one has any."""
        try:
            async with asyncio.timeout(self._seconds):
                return await call
        except TimeoutError as error:
            problems = [request.problem for request in requests if request.problem]
            raise self.unavailable(problems[0] if problems else error) from None
        except _FAILURES as error:
            raise self.unavailable(error) from None

    def _slot(self, command: Command) -> int:
        if not self._address.is_cluster:
            return 0
        return key_slot(str(command[3 if command[0] == "EVAL" else 1]).encode())

    async def _map(self) -> Mapping[int, Node]:
        """The master of each slot. Raises one of _FAILURES if no node tells it."""
        if not self._is_stale:
            return self._owners
        async with self._reading:
            loop = asyncio.get_running_loop()
            if self._is_stale and loop.time() - self._read_at >= _LEAST_AGE:
                self._owners = await self._read_map()
                self._is_stale, self._failed, self._read_at = False, None, loop.time()
            return self._owners

    async def _read_map(self) -> dict[int, Node]:
        problem: Exception = TimeoutError()
        known = {*self._address.nodes, *self._owners.values()}
        for node in sorted(known, key=lambda node: (node == self._failed, random.random())):
            try:
                async with asyncio.timeout(self._seconds / 4):
                    (reply,) = await self._exchange(node, [["CLUSTER", "SLOTS"]])
                if not isinstance(reply, Exception):
                    return {
                        slot: Node(host.decode() if host else node.host, port)
                        for first, last, (host, port, *_), *_ in reply
                        for slot in range(first, last + 1)
                    }
                problem = reply
            except _FAILURES as error:
                problem = error
        raise problem

    async def _send_all(self, requests: Sequence[_Request], replicas: int) -> None:
        """Send requests until none has to be sent again."""
        rounds = 0
        while requests:
            if rounds >= _AT_ONCE:
                await asyncio.sleep(min(_LEAST_PAUSE * 2 ** (rounds - _AT_ONCE), _MOST_PAUSE))
            await self._send(requests, replicas)
            requests = [request for request in requests if request.problem]
            rounds += 1

    async def _send(self, requests: Sequence[_Request], replicas: int) -> None:
        """Send requests once, to all servers at the same time; all end before an error is raised."""
        owners = await self._map()
        groups: defaultdict[Node, list[_Request]] = defaultdict(list)
        for request in requests:
            if node := request.asking or owners.get(request.slot):
                groups[node].append(request)
            else:
                request.problem = exceptions.ClusterDownError(f"no node serves slot {request.slot}")
                self._is_stale = True
        sending = [self._send_to(node, group, replicas) for node, group in groups.items()]
        if len(sending) == 1:  # without the cost of a task
            await sending[0]
            return
        for result in await asyncio.gather(*sending, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _send_to(self, node: Node, requests: Sequence[_Request], replicas: int) -> None:
        """Send requests over one connection, and take the replies."""
        commands: list[Command] = []
        places = []
        for request in requests:
            commands += [["ASKING"]] if request.asking else []
            places.append(len(commands))
            commands.append(request.command)
        wait: list[Command] = [["WAIT", replicas, round(self._seconds * 500)]] if replicas else []
        try:
            replies = await self._exchange(node, [*commands, *wait])
        except asyncio.CancelledError:  # it hangs, perhaps: the next call looks for its successor
            self._failed, self._is_stale = node, self._address.is_cluster
            raise
        except _FAILURES as error:
            # Sending again would not help after a refused password; a single Redis has no successor.
            if isinstance(error, exceptions.AuthenticationError) or not self._address.is_cluster:
                raise
            self._failed, self._is_stale = node, True
            for request in requests:
                request.asking, request.problem = None, error
            return
        for request, place in zip(requests, places, strict=True):
            self._take(request, replies[place], node)
        answered = [request for request in requests if not request.problem]
        if wait and answered:
            self.raise_for_errors([request.reply for request in answered])
            self._check_confirmed(answered, replies[-1], replicas)

    def _take(self, request: _Request, reply: Any, node: Node) -> None:
        """Take the reply to a request, or note where and why to send it again."""
        request.reply, request.problem, request.asking = reply, None, None
        if not self._address.is_cluster or not isinstance(reply, _REDIRECTIONS):
            return
        request.problem = reply
        if isinstance(reply, exceptions.AskError):
            target = Node(reply.host or node.host, reply.port)
            request.problem = exceptions.ClusterError(f"slot {request.slot} is being moved to {target}")
            if not isinstance(reply, exceptions.MovedError):
                request.asking = target
                return
            self._owners[request.slot] = target
        self._is_stale = True

    def _check_confirmed(self, answered: Sequence[_Request], confirmed: Any, replicas: int) -> None:
        """Check the number of replicas that have confirmed the writes of one master."""
        if isinstance(confirmed, Exception) and self._address.is_cluster:
            self._is_stale = True  # the master was demoted, and its successor may not have the writes
            for request in answered:
                request.problem = confirmed
            return
        self.raise_for_errors([confirmed])
        if confirmed < replicas:
            raise self._failures.unavailable(
                f"{self._address} has stored it, but fewer than {replicas} replicas have confirmed"
            )

    async def _exchange(self, node: Node, commands: Sequence[Command]) -> list[Any]:
        """Send commands to a server and return the replies. Raises one of _FAILURES."""
        if node not in self._servers:
            self._servers[node] = self._connect(node)
        pipeline = self._servers[node].pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        async with self._free[node]:
            return await pipeline.execute(raise_on_error=False)

    def _connect(self, node: Node) -> Redis:
        server = Redis(
            host=node.host,
            port=node.port,
            retry=Retry(NoBackoff(), 1),
            socket_timeout=None,  # each call has a timeout
            socket_connect_timeout=None,
            max_connections=2 * self._size,  # one of a cancelled call is returned late
            protocol=2,
            **self._address.options,
        )
        server.response_callbacks.clear()  # one that fails leaves replies on the connection
        return server


def script_run(script: str, keys: Sequence[str], values: Command) -> Command:
    """The command that runs a Lua script; in a cluster its keys are in one slot."""
    return ["EVAL", script, len(keys), *keys, *values]
