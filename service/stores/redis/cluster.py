"""Calls to a Redis Cluster: each is sent to the master of its slot, and follows the slot when it moves.

redis-py's own RedisCluster does not serve here: it has no WAIT on the connection of a write, so that a write
that was redirected would be confirmed by the replicas of another master.
"""

import asyncio
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis import exceptions

from turret.service.stores.redis.address import Node, RedisAddress
from turret.service.stores.redis.calls import Call, Command, RedisCalls, by_digest, in_full
from turret.service.stores.redis.connections import FAILURES, REFUSALS, RedisConnections
from turret.service.stores.redis.slots import SLOTS, node_named, slot_of
from turret.service.stores.redis.topology import Topology

_LEAST_PAUSE, _MOST_PAUSE = 0.02, 0.2
_MOST_AT_ONCE = 5  # rounds without a pause: two nodes may send a request to each other
_REFUSED = tuple(kind for kind in REFUSALS if kind is not exceptions.BusyLoadingError)  # that one will pass


@dataclass(eq=False)
class _Request:
    """One command: where it goes, how a server without its script runs it, and its reply."""

    slot: int
    command: Command
    in_full: Command | None = None
    asking: Node | None = None  # where this slot is being moved to, for this request alone
    reply: Any = None
    problem: Exception | None = None  # why it has to be sent again
    has_to_pause: bool = False
    is_open: bool = True


class ClusterConnections(RedisCalls):
    """Up to `size` connections to each node of a cluster.

    A request whose slot has moved, or whose master is gone, is sent again until `seconds` are over: a
    failover that takes less is only a delay. So each command may run more than once.
    """

    def __init__(self, address: RedisAddress, size: int, seconds: float) -> None:
        super().__init__(address, seconds)
        self._topology = Topology(address, size, seconds)

    async def execute(self, commands: Sequence[Command]) -> list[Any]:
        """Send each command to the master of its key; see RedisCalls."""
        return await self._complete([_Request(slot_of(command[1]), command) for command in commands], [])

    async def run_all(self, script: str, calls: Sequence[Call], is_write: bool = True) -> list[Any]:
        """Run a script for each call, together for those of one master; see RedisCalls."""
        requests = [
            _Request(slot_of(call[0][0]), by_digest(script, call), in_full(script, call)) for call in calls
        ]
        replies = await self._complete(requests, self.wait(is_write))
        self.raise_for_errors(replies)
        return replies

    async def masters(self) -> Mapping[RedisCalls, Hashable]:
        """The masters with their slots, as the nodes tell them now; see RedisCalls."""
        self._topology.doubt()
        try:
            async with asyncio.timeout(self._seconds):
                slots = await self._topology.slots()
        except FAILURES as error:
            raise self.unavailable(error) from None
        owned = slots.slots_by_master()
        if missing := SLOTS - sum(map(len, owned.values())):
            raise self.unavailable(exceptions.ClusterDownError(f"no node serves {missing} of its slots"))
        return {self._topology.node(node): its_slots for node, its_slots in owned.items()}

    async def close(self) -> None:
        """Close the connections to all nodes."""
        await self._topology.close()

    async def _complete(self, requests: Sequence[_Request], wait: Sequence[Command]) -> list[Any]:
        """Send requests until each has a reply, and return the replies."""
        pauses, at_once = _pauses(), 0
        try:
            async with asyncio.timeout(self._seconds):
                while pending := [request for request in requests if request.is_open]:
                    at_once = 0 if any(request.has_to_pause for request in pending) else at_once + 1
                    if not 0 < at_once <= _MOST_AT_ONCE:
                        await asyncio.sleep(next(pauses))
                    await self._send(pending, wait)
        except TimeoutError:
            problems = (request.problem for request in requests if request.is_open and request.problem)
            raise self.unavailable(next(problems, TimeoutError())) from None
        except FAILURES as error:
            raise self.unavailable(error) from None
        return [request.reply for request in requests]

    async def _send(self, requests: Sequence[_Request], wait: Sequence[Command]) -> None:
        """Send requests once, to all nodes at the same time; all end before an error is raised."""
        slots = await self._topology.slots()
        groups: dict[Node, list[_Request]] = {}
        for request in requests:
            node = request.asking or slots.master(request.slot)
            if node:
                groups.setdefault(node, []).append(request)
            else:
                self._send_later(request, exceptions.ClusterDownError(f"no node serves slot {request.slot}"))
        sending = (self._send_to(node, group, wait) for node, group in groups.items())
        for result in await asyncio.gather(*sending, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _send_to(self, node: Node, requests: Sequence[_Request], wait: Sequence[Command]) -> None:
        connections = self._topology.node(node)
        try:
            replies, confirmed = await _exchange(connections, requests, wait)
        except asyncio.CancelledError:  # it hangs, perhaps: whoever calls next looks for its successor
            self._topology.doubt()
            raise
        except _REFUSED as error:
            raise connections.unavailable(error) from None
        except FAILURES as error:
            for request in requests:
                self._send_later(request, error)
            return
        for request, reply in zip(requests, replies, strict=True):
            self._take(request, reply, node)
        answered = [request for request in requests if not request.is_open]
        if wait and answered:
            self._check(answered, confirmed)

    def _check(self, answered: Sequence[_Request], confirmed: Any) -> None:
        if not isinstance(confirmed, exceptions.ResponseError):
            return self.check_confirmed(confirmed)
        # The master was demoted while it waited: its successor may not have the write.
        for request in answered:
            self._send_later(request, confirmed)
        return None

    def _send_later(self, request: _Request, problem: Exception) -> None:
        """Send a request again after a pause, to whoever has its slot then."""
        self._topology.doubt()
        request.asking, request.problem = None, problem
        request.is_open = request.has_to_pause = True

    def _take(self, request: _Request, reply: Any, node: Node) -> None:
        """Take the reply to a request, or note where and how to send it again."""
        request.has_to_pause = False
        if isinstance(reply, exceptions.NoScriptError) and request.in_full:
            # A new master has no scripts yet; the problem to report is the one that led there.
            request.command, request.problem = request.in_full, request.problem or reply
        elif isinstance(reply, exceptions.AskError):  # or MovedError, which is one of them
            request.problem = exceptions.ClusterError(f"slot {request.slot} is being moved")
            target = node_named(*reply.node_addr, node)
            is_final = isinstance(reply, exceptions.MovedError)
            request.asking = None if is_final else target
            if is_final:
                self._topology.move(request.slot, target)
        elif isinstance(reply, (exceptions.TryAgainError, exceptions.ClusterDownError)):
            self._send_later(request, reply)
        else:
            request.reply, request.is_open = reply, False


async def _exchange(
    connections: RedisConnections, requests: Sequence[_Request], wait: Sequence[Command]
) -> tuple[list[Any], Any]:
    """Send requests over one connection, with `wait` behind them; return the replies and that of `wait`."""
    commands: list[Command] = []
    indexes = []
    for request in requests:
        if request.asking:
            commands.append(["ASKING"])
        indexes.append(len(commands))
        commands.append(request.command)
    replies = await connections.send([*commands, *wait])
    return [replies[index] for index in indexes], replies[-1]


def _pauses() -> Iterator[float]:
    """Seconds before requests are sent again that only time can help."""
    pause = _LEAST_PAUSE
    while True:
        yield pause
        pause = min(2 * pause, _MOST_PAUSE)


def connect(address: RedisAddress, size: int, seconds: float) -> RedisCalls:
    """Make the calls of an address; connections are opened when needed."""
    kind = ClusterConnections if address.nodes else RedisConnections
    return kind(address, size, seconds)
