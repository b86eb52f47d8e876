"""A Redis or a Redis Cluster: its address, the names of its keys, and calls in one round trip.

redis-py holds the connections to each server. The client of clusters of redis-py does not serve here: it
sends ASKING, the command and WAIT on different connections, so that a redirected write would be confirmed by
the replicas of another master.
"""

import asyncio
import random
import re
from collections import defaultdict
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

from pydantic_core import MultiHostUrl
from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot

from turret.data.errors import without_credentials
from turret.service.errors import HistoryDamagedError, HistoryUnavailableError, ServiceError

Result = TypeVar("Result")
Command = Sequence[bytes | str | int]

EXAMPLE = "redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE][?prefix=NAME:&replicas=COUNT]"
_PREFIX = re.compile(r"[A-Za-z0-9._:-]{1,64}")

# The exceptions of redis-py for a server that is absent, hangs, or is no Redis.
_FAILURES = (exceptions.RedisError, OSError, EOFError, ValueError)
# Error replies by which a cluster redirects a command or asks to retry it; MovedError is an AskError.
_REDIRECTIONS = (exceptions.AskError, exceptions.ClusterDownError, exceptions.TryAgainError)
_SLOTS = 16_384
# Seconds before each retry of a command. The first retry is immediate, as it goes to another master.
_PAUSES = (0.0, 0.02, 0.04, 0.08, 0.16)
# The least seconds between two reads of the slot map: many calls meet a failed node at the same time.
_LEAST_AGE = 0.1


class Node(NamedTuple):
    """The place where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class RedisAddress:
    """A parsed address: `prefix` starts all keys, so many `replicas` must confirm a write.

    `nodes` has the single Redis, or the nodes of a cluster that are asked for its other nodes. `options` are
    further arguments of `redis.asyncio.Redis`.

    A cluster hashes the text between the first `{` and the next `}` of a key. The colon of a user's keys is
    inside the braces, so that this text is never empty; as the id is the rest of the key up to its last `}`,
    ids with braces need no escape, and still have all their keys in one slot.
    """

    nodes: tuple[Node, ...]
    is_cluster: bool
    prefix: str
    replicas: int
    options: Mapping[str, Any] = field(repr=False)

    def __str__(self) -> str:
        scheme = f"redis{'s' * self.options['ssl']}"
        if self.is_cluster:
            return f"{scheme}+cluster://{','.join(map(str, self.nodes))}"
        return f"{scheme}://{self.nodes[0]}/{self.options['db']}"

    def events(self, user: str) -> str:
        """The sorted set of a user's events."""
        return f"{self.prefix}user{{:{user}}}"

    def ids(self, user: str) -> str:
        """The sorted set of a user's event ids."""
        return f"{self.prefix}ids{{:{user}}}"

    def claim(self, user: str) -> str:
        """The user that the events of a user, a session, are being moved to."""
        return f"{self.prefix}moving{{:{user}}}"

    def user_of(self, key: bytes) -> str | None:
        """The user whose events a key has; None for another key."""
        begin, end = self.events("\n").split("\n")
        text = key.decode("utf-8", "replace")
        return text[len(begin) : -len(end)] if text.startswith(begin) and text.endswith(end) else None

    def shared(self, name: str) -> str:
        """A key of the items or of the members' record; all these keys are in one slot."""
        return f"{self.prefix}{{shared}}:{name}"


def read_address(address: str) -> RedisAddress:
    """Parse the address of a Redis or, with `+cluster`, of a cluster; `rediss` stands for TLS.

    Raises ServiceError, without the password.
    """
    scheme = address.partition(":")[0]
    is_cluster = scheme.endswith("+cluster")
    try:
        url = MultiHostUrl(address)
        hosts, query = url.hosts(), dict(url.query_params())
        nodes = tuple(Node((host["host"] or "").strip("[]"), host["port"] or 6379) for host in hosts)
        database = int((url.path or "").removeprefix("/") or "0")
        prefix, replicas = query.pop("prefix", "turret:"), int(query.pop("replicas", "0"))
        if query or url.fragment or database < 0 or replicas < 0 or not _PREFIX.fullmatch(prefix):
            raise ValueError
        if not nodes or (database if is_cluster else len(nodes) > 1):  # a cluster has no databases
            raise ValueError
    except ValueError:
        raise ServiceError(
            f"{without_credentials(address)!r} is no Redis address; write {EXAMPLE}, percent-encode a "
            "password; for TLS write rediss://, for a cluster redis+cluster://HOST:PORT,HOST:PORT"
        ) from None
    options = {
        "db": database,
        "ssl": scheme.startswith("rediss"),
        "username": unquote(hosts[0]["username"] or "") or None,
        "password": unquote(hosts[0]["password"] or "") or None,
    }
    return RedisAddress(nodes, is_cluster, prefix, replicas, options)


class Failures(NamedTuple):
    """The error types of a store, and its words for a key with foreign data."""

    unavailable: type[ServiceError]
    damaged: type[ServiceError]
    foreign: str


HISTORIES = Failures(HistoryUnavailableError, HistoryDamagedError, "that is no history")


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
        self._owners = {0: address.nodes[0]}  # the master of each slot; a single Redis has slot 0 alone
        self._is_stale = address.is_cluster
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    async def execute(self, commands: Sequence[Command], is_write: bool = False) -> list[Any]:
        """Send commands and return their replies; the first error reply is raised.

        The key is the second word of each command, or the first key of a script. Commands of one slot go
        together. A write is confirmed by the address's number of replicas; too few confirmations are an
        error. After an error any of the commands may have run.
        """
        replicas = self._address.replicas if is_write else 0
        wait: list[Command] = [["WAIT", replicas, round(self._seconds * 500)]] if replicas else []
        slots: defaultdict[int, list[int]] = defaultdict(list)
        for place, command in enumerate(commands):
            slots[self._slot(command)].append(place)
        calls = [
            self._send(slot, [*(commands[place] for place in places), *wait])
            for slot, places in slots.items()
        ]
        # One call is awaited without the cost of a task.
        results = await self._within_time(_list_of(*calls) if len(calls) == 1 else asyncio.gather(*calls))
        replies = dict.fromkeys(range(len(commands)))
        for places, result in zip(slots.values(), results, strict=True):
            self.raise_for_errors(result)
            if wait and result[-1] < replicas:
                words = f"has stored it, but fewer than {replicas} replicas have confirmed"
                raise self._failures.unavailable(f"{self._address} {words}")
            replies.update(zip(places, result, strict=False))
        return [*replies.values()]

    async def run(self, script: str, keys: Sequence[str], values: Command, is_write: bool = True) -> Any:
        """Run a Lua script, atomically, and return its reply."""
        return (await self.execute([script_run(script, keys, values)], is_write))[0]

    async def masters(self) -> list[Node]:
        """The servers that together hold all keys at present."""
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

    async def _within_time(self, call: Awaitable[Result]) -> Result:
        try:
            async with asyncio.timeout(self._seconds):
                return await call
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
                self._is_stale, self._read_at = False, loop.time()
            return self._owners

    async def _read_map(self) -> dict[int, Node]:
        problem: Exception = TimeoutError()
        known = [*{*self._address.nodes, *self._owners.values()}]
        for node in random.sample(known, len(known)):
            try:
                async with asyncio.timeout(self._seconds / 4):
                    (reply,) = await self._exchange(node, [["CLUSTER", "SLOTS"]])
                if isinstance(reply, Exception):
                    raise reply
                return {
                    slot: Node(host.decode() if host else node.host, port)
                    for first, last, (host, port, *_), *_ in reply
                    for slot in range(first, last + 1)
                }
            except _FAILURES as error:
                problem = error
        raise problem

    async def _send(self, slot: int, commands: Sequence[Command]) -> list[Any]:
        """Send commands over one connection; in a cluster again until they reach the master of their slot."""
        if not self._address.is_cluster:
            return await self._exchange(self._address.nodes[0], commands)
        loop = asyncio.get_running_loop()
        end = loop.time() + self._seconds
        asking: Node | None = None  # the node that the slot is being moved to, for these commands alone
        for pause in chain(_PAUSES, repeat(_PAUSES[-1])):
            node = asking or (await self._map()).get(slot, self._address.nodes[0])
            try:
                if asking:  # ASKING holds for one command
                    doubled = [part for command in commands for part in (["ASKING"], command)]
                    replies = (await self._exchange(node, doubled))[1::2]
                else:
                    replies = await self._exchange(node, commands)
                for reply in replies:
                    if _is_redirection(reply):
                        raise reply
                return replies
            except exceptions.AuthenticationError:  # sending again would not help
                raise
            except exceptions.AskError as error:
                asking = Node(error.host or node.host, error.port)
                problem: Exception = exceptions.ClusterError(f"slot {slot} is being moved to {asking}")
                if isinstance(error, exceptions.MovedError):
                    self._owners[slot], self._is_stale, asking = asking, True, None
            except _FAILURES as error:
                problem, self._is_stale, asking = error, True, None
            if loop.time() + pause > end:
                break
            await asyncio.sleep(pause)
        raise problem

    async def _exchange(self, node: Node, commands: Sequence[Command]) -> list[Any]:
        """Send commands to a server and return the replies. Raises one of _FAILURES."""
        if node not in self._servers:
            self._servers[node] = self._connect(node)
        pipeline = self._servers[node].pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        try:
            async with self._free[node]:
                return await pipeline.execute(raise_on_error=False)
        except BaseException:  # also where a call is cancelled, as the server may hang
            self._is_stale = self._address.is_cluster
            raise

    def _connect(self, node: Node) -> Redis:
        server = Redis(
            host=node.host,
            port=node.port,
            retry=Retry(NoBackoff(), 1),
            socket_timeout=None,  # each call has a timeout
            socket_connect_timeout=None,
            max_connections=2 * self._size,  # the connection of a cancelled call is returned late
            protocol=2,
            **self._address.options,
        )
        server.response_callbacks.clear()  # a callback that fails leaves replies on the connection
        return server


def _is_redirection(reply: Any) -> bool:
    """Whether a command has to be sent again, also where its master was demoted during WAIT."""
    was_demoted = isinstance(reply, Exception) and str(reply).startswith("UNBLOCKED")
    return was_demoted or isinstance(reply, _REDIRECTIONS)


async def _list_of(call: Awaitable[Result]) -> list[Result]:
    return [await call]


def script_run(script: str, keys: Sequence[str], values: Command) -> Command:
    """The command that runs a Lua script; in a cluster its keys are in one slot."""
    return ["EVAL", script, len(keys), *keys, *values]
