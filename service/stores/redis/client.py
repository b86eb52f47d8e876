"""Calls to a Redis or a Redis Cluster: commands and scripts in one round trip, failures as errors in words.

redis-py holds the connections to each server. Its client of clusters does not serve here: it sends ASKING,
the command and WAIT on different connections, so that a redirected write would be confirmed by the replicas
of another master.
"""

import asyncio
import hashlib
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot

from turret.service.errors import HistoryDamagedError, HistoryUnavailableError, ServiceError
from turret.service.stores.redis.address import Node, RedisAddress

Command = Sequence[bytes | str | int]
Call = tuple[Sequence[str], Command]  # the keys and the values of one run of a script

# What a client raises of a server that is not there, hangs, or is no Redis.
_FAILURES = (exceptions.RedisError, OSError, EOFError, ValueError)
_OF_CLUSTER = (
    exceptions.AskError,  # MovedError is one
    exceptions.ClusterCrossSlotError,
    exceptions.ClusterDownError,
    exceptions.TryAgainError,
)
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


_UNSENT = TimeoutError()


@dataclass(eq=False, slots=True)
class _Request:
    """One command: where it goes, and its reply, or why it has to be sent again."""

    slot: int
    command: Command
    asking: Node | None = None  # where this slot is being moved to, for this request alone
    reply: Any = None
    problem: Exception | None = _UNSENT


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
        self._known = {*address.nodes}  # who may be asked for the map
        self._owners = {0: Node(address.host, address.port)}  # the master of each slot, one of a single Redis
        self._is_stale = bool(address.nodes)
        self._failed: Node | None = None  # who is asked last for the next map
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    async def execute(
        self, commands: Sequence[Command], before: Sequence[Command] = (), after: Sequence[Command] = ()
    ) -> list[Any]:
        """Send commands and return their replies; an error reply is returned as a value.

        The key is the second word of each, or the first key of a script. `before` and `after` are sent on the
        same connections; the reply to `after` is the number of replicas that have confirmed.
        """
        pending = requests = [_Request(self._slot(command), command) for command in commands]
        rounds = 0
        try:
            async with asyncio.timeout(self._seconds):
                while pending:
                    if rounds >= _AT_ONCE:
                        await asyncio.sleep(min(_LEAST_PAUSE * 2 ** (rounds - _AT_ONCE), _MOST_PAUSE))
                    await self._send(pending, before, after)
                    pending = [request for request in pending if request.problem]
                    rounds += 1
        except TimeoutError as error:
            raise self.unavailable(next(filter(None, (one.problem for one in pending)), error)) from None
        except _FAILURES as error:
            raise self.unavailable(error) from None
        return [request.reply for request in requests]

    async def run_all(self, script: str, calls: Sequence[Call], is_write: bool = True) -> list[Any]:
        """Run a Lua script for each of `calls`, each atomically, and return the replies.

        In a cluster the keys of a call are in one slot. A write is confirmed by the address's number of
        replicas; too few are an error. After an error any of the calls may have run.
        """
        # A server may have restarted since it was told the script, so it is told each time.
        before: list[Command] = [["SCRIPT", "LOAD", script]] if len(calls) > 1 else []
        run = ["EVALSHA", _digest(script)] if before else ["EVAL", script]
        commands: list[Command] = [[*run, len(keys), *keys, *values] for keys, values in calls]
        replicas = self._address.replicas if is_write else 0
        wait: list[Command] = [["WAIT", replicas, round(self._seconds * 500)]] if replicas else []
        replies = await self.execute(commands, before, wait)
        self.raise_for_errors(replies)
        return replies

    async def run(self, script: str, keys: Sequence[str], values: Command, is_write: bool = True) -> Any:
        """Run a Lua script once; see `run_all`."""
        return (await self.run_all(script, [(keys, values)], is_write))[0]

    async def masters(self) -> Mapping[Node, set[int]]:
        """The servers that hold all keys, each with its slots as they are now."""
        self._is_stale = bool(self._address.nodes)
        try:
            async with asyncio.timeout(self._seconds):
                owners = await self._map()
        except _FAILURES as error:
            raise self.unavailable(error) from None
        missing = _SLOTS - len(owners)
        if missing and self._address.nodes:
            raise self.unavailable(exceptions.ClusterDownError(f"no node serves {missing} of its slots"))
        slots: defaultdict[Node, set[int]] = defaultdict(set)
        for slot, node in owners.items():
            slots[node].add(slot)
        return slots

    async def ask(self, master: Node, commands: Sequence[Command]) -> list[Any]:
        """Like `execute`, but all commands go to one of the `masters`."""
        try:
            async with asyncio.timeout(self._seconds):
                return await self._exchange(master, commands)
        except _FAILURES as error:
            raise self.unavailable(error) from None

    async def close(self) -> None:
        """Close all connections."""
        for server in self._servers.values():
            await server.aclose()

    def unavailable(self, error: Exception) -> ServiceError:
        """Make the error of a failed call; WRONGTYPE concerns one key, not the server."""
        reason = " ".join(str(error).split())
        if reason.startswith("WRONGTYPE"):
            return self.damaged()
        scheme = f"redis{'s' * self._address.tls}"
        if isinstance(error, _OF_CLUSTER) and not self._address.nodes:
            reason = f"it is a node of a Redis Cluster; name it {scheme}+cluster://HOST:PORT"
        elif "cluster support disabled" in reason:
            reason = f"it is no Redis Cluster but a single Redis; name it {scheme}://HOST:PORT"
        reason = reason or f"no reply within {self._seconds:g} seconds"
        return self._failures.unavailable(f"{self._address} unavailable: {reason.rstrip('.')}")

    def damaged(self) -> ServiceError:
        """Make the error of a key with foreign data."""
        return self._failures.damaged(
            f"{self._address} has a key {self._address.prefix}* {self._failures.foreign}; delete it, or "
            f"choose another {'' if self._address.nodes else 'database or '}prefix"
        )

    def raise_for_errors(self, replies: Sequence[Any]) -> None:
        """Raise the error of the first error reply."""
        for reply in replies:
            if isinstance(reply, Exception):
                raise self.unavailable(reply)

    def _slot(self, command: Command) -> int:
        if not self._address.nodes:
            return 0
        key = command[3] if command[0] in ("EVAL", "EVALSHA") else command[1]
        return key_slot(str(key).encode())

    async def _map(self) -> Mapping[int, Node]:
        """The master of each slot. Raises one of _FAILURES if no node tells it."""
        async with self._reading:
            loop = asyncio.get_running_loop()
            if self._is_stale and loop.time() - self._read_at >= _LEAST_AGE:
                await self._read_map()
                self._is_stale, self._failed, self._read_at = False, None, loop.time()
            return self._owners

    async def _read_map(self) -> None:
        problem: Exception = TimeoutError()
        for node in sorted(self._known, key=lambda node: (node == self._failed, random.random())):
            try:
                async with asyncio.timeout(self._seconds / 4):
                    (reply,) = await self._exchange(node, [["CLUSTER", "SLOTS"]])
            except _FAILURES as error:
                problem = error
                continue
            if isinstance(reply, Exception):
                problem = reply
                continue
            self._owners, self._known = {}, {*self._address.nodes}
            for first, last, *served in reply:
                nodes = [Node(host.decode() if host else node.host, port) for host, port, *_ in served]
                self._owners |= dict.fromkeys(range(first, last + 1), nodes[0])
                self._known.update(nodes)
            return
        raise problem

    async def _send(
        self, requests: Sequence[_Request], before: Sequence[Command], after: Sequence[Command]
    ) -> None:
        """Send requests once, to all servers at the same time; all end before an error is raised."""
        owners = await self._map() if self._is_stale else self._owners
        groups: defaultdict[Node, list[_Request]] = defaultdict(list)
        for request in requests:
            if node := request.asking or owners.get(request.slot):
                groups[node].append(request)
            else:
                self._send_later(request, exceptions.ClusterDownError(f"no node serves slot {request.slot}"))
        sending = [self._send_to(node, group, before, after) for node, group in groups.items()]
        if len(sending) == 1:  # without the cost of a task
            await sending[0]
            return
        for result in await asyncio.gather(*sending, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _send_to(
        self, node: Node, requests: Sequence[_Request], before: Sequence[Command], after: Sequence[Command]
    ) -> None:
        """Send requests over one connection, between `before` and `after`, and take the replies."""
        commands = list(before)
        places = []
        for request in requests:
            commands += [["ASKING"]] if request.asking else []
            places.append(len(commands))
            commands.append(request.command)
        try:
            replies = await self._exchange(node, [*commands, *after])
        except asyncio.CancelledError:  # it hangs, perhaps: whoever calls next looks for its successor
            self._is_stale, self._failed = bool(self._address.nodes), node
            raise
        except _FAILURES as error:
            if isinstance(error, exceptions.AuthenticationError):  # sending again would not help
                raise
            self._failed = node
            for request in requests:
                self._send_later(request, error)
            return
        self.raise_for_errors(replies[: len(before)])
        for request, place in zip(requests, places, strict=True):
            self._take(request, replies[place], node)
        answered = [request for request in requests if not request.problem]
        if not after or not answered:
            return
        self.raise_for_errors([request.reply for request in answered])
        if isinstance(replies[-1], Exception):  # the master was demoted while it waited
            for request in answered:  # its successor may not have the writes
                self._send_later(request, replies[-1])
        elif replies[-1] < self._address.replicas:
            raise self._failures.unavailable(
                f"{self._address} has stored it, but fewer than {self._address.replicas} replicas have "
                "confirmed"
            )

    def _send_later(self, request: _Request, problem: Exception) -> None:
        """Send a request again, to whoever has its slot then; a single Redis has no successor."""
        if not self._address.nodes:
            raise self.unavailable(problem)
        self._is_stale = True
        request.asking, request.problem = None, problem

    def _take(self, request: _Request, reply: Any, node: Node) -> None:
        """Take the reply to a request, or note where and how to send it again."""
        request.reply, request.problem = reply, None
        if not self._address.nodes:
            return
        if isinstance(reply, exceptions.AskError):
            request.problem = exceptions.ClusterError(f"slot {request.slot} is being moved")
            request.asking = Node(reply.host or node.host, reply.port)
            if isinstance(reply, exceptions.MovedError):
                self._owners[request.slot] = request.asking
                request.asking, self._is_stale = None, True
        elif isinstance(reply, (exceptions.TryAgainError, exceptions.ClusterDownError)):
            self._send_later(request, reply)

    async def _exchange(self, node: Node, commands: Sequence[Command]) -> list[Any]:
        """Send commands to a server and return the replies. Raises one of _FAILURES."""
        server = self._server(node)
        pipeline = server.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        async with self._free[node]:
            return await pipeline.execute(raise_on_error=False)

    def _server(self, node: Node) -> Redis:
        if node not in self._servers:
            server = Redis(
                host=node.host,
                port=node.port,
                db=self._address.database,
                username=self._address.username,
                password=self._address.password,
                retry=Retry(NoBackoff(), 1),
                socket_timeout=None,  # each call has a timeout
                socket_connect_timeout=None,
                max_connections=2 * self._size,  # one of a cancelled call is returned late
                ssl=self._address.tls,
                protocol=2,
            )
            server.response_callbacks.clear()  # one that fails leaves replies on the connection
            self._servers[node] = server
        return self._servers[node]


@cache
def _digest(script: str) -> str:
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
