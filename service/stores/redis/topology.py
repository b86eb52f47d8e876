"""The nodes of a Redis Cluster, with connections to each, and the slot map that they agree on."""

import asyncio
from collections.abc import Iterable

from redis.exceptions import ResponseError

from turret.service.stores.redis.address import Node, RedisAddress
from turret.service.stores.redis.connections import FAILURES, RedisConnections
from turret.service.stores.redis.slots import SlotMap, epoch_of, newest

# A map is not read again sooner: many calls meet a failed node at the same time.
_LEAST_AGE = 0.1
# Seconds for all nodes to tell their map; after them, the first that comes is taken.
_PATIENCE = 0.25


class Topology:
    """Connections by node, up to `size` each, and the slot map, which is read when it is first needed."""

    def __init__(self, address: RedisAddress, size: int, seconds: float) -> None:
        self._address = address
        self._size = size
        self._seconds = seconds
        self._connections: dict[Node, RedisConnections] = {}
        self._map: SlotMap | None = None
        self._read_at = 0.0
        self._reading = asyncio.Lock()
        self._is_stale = True

    def node(self, node: Node) -> RedisConnections:
        """The connections to a node."""
        if node not in self._connections:
            address = self._address.of_node(node)
            self._connections[node] = RedisConnections(address, self._size, self._seconds)
        return self._connections[node]

    def doubt(self) -> None:
        """Have the map read again before it is used next."""
        self._is_stale = True

    def move(self, slot: int, node: Node) -> None:
        """Follow a redirection, and have the rest of the map read again."""
        if self._map:
            self._map.move(slot, node)
        self._is_stale = True

    async def slots(self) -> SlotMap:
        """The slot map. Raises one of FAILURES if no node tells it."""
        async with self._reading:
            now = asyncio.get_running_loop().time()
            if self._map is None or (self._is_stale and now - self._read_at >= _LEAST_AGE):
                named = set(self._address.nodes)
                self._map = await self._read(named | (self._map.nodes if self._map else set()))
                self._is_stale = False
                self._read_at = asyncio.get_running_loop().time()
                await self._drop_others(named | self._map.nodes)
            return self._map

    async def close(self) -> None:
        """Close all connections."""
        for connections in self._connections.values():
            await connections.close()

    async def _read(self, nodes: set[Node]) -> SlotMap:
        """Ask all nodes at the same time: one that hangs, or is cut off with an old map, must not decide."""
        asking = {asyncio.ensure_future(self._ask(node)) for node in nodes}
        running, maps = asking, list[SlotMap]()
        try:
            done, running = await asyncio.wait(asking, timeout=min(_PATIENCE, self._seconds / 4))
            maps += _maps(done)
            while running and not maps:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                maps += _maps(done)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        if not maps:
            raise next(error for task in asking if (error := task.exception()))
        return newest(maps)

    async def _ask(self, node: Node) -> SlotMap:
        slots, info = await self.node(node).send([["CLUSTER", "SLOTS"], ["CLUSTER", "INFO"]])
        if isinstance(slots, ResponseError):
            raise slots
        return SlotMap(slots, node, epoch_of(info))

    async def _drop_others(self, nodes: set[Node]) -> None:
        for node in self._connections.keys() - nodes:
            await self._connections.pop(node).close()


def _maps(tasks: Iterable["asyncio.Task[SlotMap]"]) -> list[SlotMap]:
    """The maps that were told. Raises other errors than FAILURES."""
    maps = []
    for task in tasks:
        error = task.exception()
        if error is None:
            maps.append(task.result())
        elif not isinstance(error, FAILURES):
            raise error
    return maps
