"""Calls to a Redis Cluster: each is sent to the master of its slot, and follows the slot when it moves.

redis-py's client reads the slot map and holds the connections. Its own calls do not serve here: they have no
WAIT on the connection of a write, so that a write that was redirected would be confirmed by the replicas of
another master.
"""

import asyncio
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from redis import exceptions
from redis.asyncio.cluster import ClusterNode, PipelineCommand, RedisCluster

from turret.service.stores.redis.address import RedisAddress
from turret.service.stores.redis.client import (
    FAILURES,
    Call,
    Command,
    RedisCalls,
    SingleRedis,
    by_digest,
    in_full,
    options,
)

SLOTS = 16_384
_AT_ONCE = 3  # rounds without a pause: to the old master, the new one, and there with the whole script
_LEAST_PAUSE, _MOST_PAUSE = 0.02, 0.2
# The slot map is not read again sooner: many calls meet a failed node at the same time.
_LEAST_AGE = 0.1
# The server has refused: sending again would not help.
_REFUSALS = (exceptions.AuthenticationError, exceptions.AuthorizationError)


@dataclass(eq=False)
class _Request:
    """One command: where it goes, how a server without its script runs it, and its reply."""

    slot: int
    command: Command
    in_full: Command | None = None
    asking: ClusterNode | None = None  # where this slot is being moved to, for this request alone
    reply: Any = None
    problem: Exception | None = None  # why it has to be sent again
    is_open: bool = True


class ClusterRedis(RedisCalls):
    """Up to `size` connections to each node of a cluster.

    A request whose slot has moved, or whose master is gone, is sent again until `seconds` are over: a
    failover that takes less is only a delay. So each command may run more than once.
    """

    def __init__(self, address: RedisAddress, size: int, seconds: float) -> None:
        super().__init__(address, seconds)
        named = [ClusterNode(node.host, node.port) for node in address.nodes]
        self._cluster = RedisCluster(
            startup_nodes=named, require_full_coverage=False, **options(address, size)
        )
        self._cluster.response_callbacks.clear()  # one that fails would leave replies on the connection
        self._named = list(self._cluster.startup_nodes)
        self._free: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(size))
        self._reading = asyncio.Lock()
        self._read_at = float("-inf")
        self._is_stale = True
        self._failed: str | None = None  # the node that is asked last for the next map

    async def execute(self, commands: Sequence[Command]) -> list[Any]:
        """Send each command to the master of its key; see RedisCalls."""
        return await self._complete([_Request(self._slot(command[1]), command) for command in commands], [])

    async def run_all(self, script: str, calls: Sequence[Call], is_write: bool = True) -> list[Any]:
        """Run a script for each call, together for those of one master; see RedisCalls."""
        requests = [
            _Request(self._slot(call[0][0]), by_digest(script, call), in_full(script, call)) for call in calls
        ]
        replies = await self._complete(requests, self.wait(is_write))
        self.raise_for_errors(replies)
        return replies

    async def masters(self) -> Mapping[str, Hashable]:
        """The masters with their slots, as a node tells them now; see RedisCalls."""
        self._is_stale = True
        try:
            async with asyncio.timeout(self._seconds):
                slots = await self._slots()
        except FAILURES as error:
            raise self.unavailable(error) from None
        if missing := SLOTS - len(slots):
            raise self.unavailable(exceptions.ClusterDownError(f"no node serves {missing} of its slots"))
        owned: dict[str, set[int]] = {}
        for slot, nodes in slots.items():
            owned.setdefault(nodes[0].name, set()).add(slot)
        return {name: frozenset(its_slots) for name, its_slots in owned.items()}

    async def ask(self, master: str, commands: Sequence[Command]) -> list[Any]:
        """Send commands to one of the masters; see RedisCalls."""
        try:
            node = self._cluster.nodes_manager.nodes_cache[master]
        except KeyError:
            raise self.unavailable(exceptions.ClusterDownError(f"{master} has left the cluster")) from None
        try:
            async with asyncio.timeout(self._seconds):
                replies = await self._exchange(node, commands)
        except FAILURES as error:
            raise self.unavailable(error) from None
        for reply in replies:
            if isinstance(reply, Exception) and not isinstance(reply, exceptions.ResponseError):
                raise self.unavailable(reply)
        return replies

    async def close(self) -> None:
        """Close the connections to all nodes."""
        manager = self._cluster.nodes_manager
        # Nodes of one name are equal, though each has connections of its own.
        for node in [*self._named, *manager.startup_nodes.values(), *manager.nodes_cache.values()]:
            await node.disconnect()

    def _slot(self, key: bytes | str | int) -> int:
        return self._cluster.keyslot(key)

    async def _slots(self) -> Mapping[int, Sequence[ClusterNode]]:
        """The nodes of each slot, its master first. Raises one of FAILURES if no node tells them in time."""
        manager = self._cluster.nodes_manager
        async with self._reading:
            now = asyncio.get_running_loop().time()
            if self._is_stale and now - self._read_at >= _LEAST_AGE:
                for node in self._named:  # those that the last map names may have new addresses
                    manager.startup_nodes.setdefault(node.name, node)
                async with asyncio.timeout(self._seconds / 4):  # one that hangs, which may be asked first
                    await manager.initialize(last_failed_node_name=self._failed)
                self._is_stale, self._failed = False, None
                self._read_at = asyncio.get_running_loop().time()
            return manager.slots_cache

    async def _complete(self, requests: Sequence[_Request], wait: Sequence[Command]) -> list[Any]:
        """Send requests until each has a reply, and return the replies."""
        rounds = 0
        try:
            async with asyncio.timeout(self._seconds):
                while pending := [request for request in requests if request.is_open]:
                    if rounds >= _AT_ONCE:
                        await asyncio.sleep(min(_LEAST_PAUSE * 2 ** (rounds - _AT_ONCE), _MOST_PAUSE))
                    await self._send(pending, wait)
                    rounds += 1
        except TimeoutError:
            problems = (request.problem for request in requests if request.is_open and request.problem)
            raise self.unavailable(next(problems, TimeoutError())) from None
        except FAILURES as error:
            raise self.unavailable(error) from None
        return [request.reply for request in requests]

    async def _send(self, requests: Sequence[_Request], wait: Sequence[Command]) -> None:
        """Send requests once, to all nodes at the same time; all end before an error is raised."""
        try:
            slots = await self._slots()
        except TimeoutError:
            return
        groups: dict[ClusterNode, list[_Request]] = {}
        for request in requests:
            if node := request.asking or next(iter(slots.get(request.slot, ())), None):
                groups.setdefault(node, []).append(request)
            else:
                self._send_later(request, exceptions.ClusterDownError(f"no node serves slot {request.slot}"))
        sending = (self._send_to(node, group, wait) for node, group in groups.items())
        for result in await asyncio.gather(*sending, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _send_to(
        self, node: ClusterNode, requests: Sequence[_Request], wait: Sequence[Command]
    ) -> None:
        """Send requests over one connection, with `wait` behind them, and take the replies."""
        commands: list[Command] = []
        indexes = []
        for request in requests:
            commands += [["ASKING"]] if request.asking else []
            indexes.append(len(commands))
            commands.append(request.command)
        try:
            replies = await self._exchange(node, [*commands, *wait])
        except asyncio.CancelledError:  # it hangs, perhaps: whoever calls next looks for its successor
            self._is_stale, self._failed = True, node.name
            raise
        except _REFUSALS:
            raise
        except FAILURES as error:
            replies = [error] * (len(commands) + len(wait))
        for request, index in zip(requests, indexes, strict=True):
            self._take(request, replies[index], node)
        answered = [request for request in requests if not request.is_open]
        if wait and answered:
            if not isinstance(replies[-1], Exception):
                self.check_confirmed(replies[-1])
            else:  # the master was demoted while it waited: its successor may not have the writes
                for request in answered:
                    self._send_later(request, replies[-1])

    async def _exchange(self, node: ClusterNode, commands: Sequence[Command]) -> list[Any]:
        sent = [PipelineCommand(place, *command) for place, command in enumerate(commands)]
        async with self._free[node.name]:
            await node.execute_pipeline(sent)
        return [command.result for command in sent]

    def _send_later(self, request: _Request, problem: Exception) -> None:
        """Send a request again, to whoever has its slot then."""
        self._is_stale = True
        request.asking, request.problem, request.is_open = None, problem, True

    def _take(self, request: _Request, reply: Any, node: ClusterNode) -> None:
        """Take the reply to a request, or note where and how to send it again."""
        if isinstance(reply, exceptions.NoScriptError) and request.in_full:
            # A new master has no scripts yet; the problem to report is the one that led there.
            request.command, request.problem = request.in_full, request.problem or reply
        elif isinstance(reply, exceptions.AskError):  # or MovedError, which is one of them
            request.problem = exceptions.ClusterError(f"slot {request.slot} is being moved")
            target = self._node(reply.host or node.host, reply.port)
            is_final = isinstance(reply, exceptions.MovedError)
            request.asking = None if is_final else target
            if is_final:
                self._cluster.nodes_manager.slots_cache[request.slot] = [target]
                self._is_stale = True
        elif isinstance(reply, (exceptions.TryAgainError, exceptions.ClusterDownError)):
            self._send_later(request, reply)
        elif isinstance(reply, Exception) and not isinstance(reply, exceptions.ResponseError):
            self._failed = node.name
            self._send_later(request, reply)
        else:
            request.reply, request.is_open = reply, False

    def _node(self, host: str, port: int) -> ClusterNode:
        """The node of a redirection, which the slot map may not name yet."""
        manager = self._cluster.nodes_manager
        node = manager.get_node(host=host, port=port)
        if node is None:
            settings = cast(dict[str, Any], self._cluster.get_connection_kwargs())
            node = ClusterNode(host, port, **settings)
            manager.set_nodes(manager.nodes_cache, {node.name: node})
        return node


def connect(address: RedisAddress, size: int, seconds: float) -> RedisCalls:
    """Make the calls of an address; connections are opened when needed."""
    kind = ClusterRedis if address.nodes else SingleRedis
    return kind(address, size, seconds)
