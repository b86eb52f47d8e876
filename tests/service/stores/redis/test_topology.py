"""Which node's slot map is believed, where one is dead, hangs, or was cut off."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest
from redis.exceptions import ConnectionError as GoneError

from turret.service.stores.redis.address import Node, read_address
from turret.service.stores.redis.calls import Command
from turret.service.stores.redis.connections import RedisConnections
from turret.service.stores.redis.topology import Topology

OLD, NEW = Node("old", 1), Node("new", 1)


class Told:
    """Nodes that tell a master and an epoch, raise an error, or (None) hang."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **told: Any) -> None:
        self.told = told
        self.asked: list[str] = []

        async def send(connections: RedisConnections, commands: Sequence[Command]) -> list[Any]:
            host = connections._address.host
            self.asked.append(host)
            told = self.told[host]
            if told is None:
                await asyncio.sleep(60)
            if isinstance(told, Exception):
                raise told
            master, epoch = told
            return [[[0, 16_383, [master, 1, b"id"]]], b"cluster_current_epoch:%d\r\n" % epoch]

        monkeypatch.setattr(RedisConnections, "send", send)


def topology(*hosts: str) -> Topology:
    return Topology(read_address(f"redis+cluster://{','.join(f'{host}:1' for host in hosts)}"), 2, 0.4)


@pytest.mark.parametrize("hosts", [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("other", [(b"old", 3), None, GoneError("gone")])
def test_the_newest_map_counts_whoever_else_says_something_old_or_nothing(
    monkeypatch: pytest.MonkeyPatch, hosts: tuple[str, ...], other: Any
) -> None:
    Told(monkeypatch, a=other, b=(b"new", 4))

    async def work() -> None:
        begun = time.monotonic()
        assert (await topology(*hosts).slots()).master(5) == NEW
        assert time.monotonic() - begun < 2

    asyncio.run(work())


def test_a_map_is_read_again_only_when_it_is_doubted(monkeypatch: pytest.MonkeyPatch) -> None:
    """And then from all nodes that it names, not only from those of the address."""
    told = Told(monkeypatch, a=(b"old", 1), old=(b"new", 2), new=(b"new", 2))

    async def work() -> None:
        nodes = topology("a")
        assert (await nodes.slots()).master(0) == OLD
        assert (await nodes.slots()).master(0) == OLD
        assert told.asked == ["a"]
        nodes.doubt()
        nodes.doubt()
        await asyncio.sleep(0.11)  # not sooner: many calls meet a failed node at the same time
        assert [(await nodes.slots()).master(0) for _ in range(3)] == [NEW] * 3
        assert sorted(told.asked) == ["a", "a", "old"]

    asyncio.run(work())


def test_a_redirection_counts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    Told(monkeypatch, a=(b"old", 1), old=(b"old", 1))

    async def work() -> None:
        nodes = topology("a")
        await nodes.slots()
        nodes.move(7, NEW)
        slots = await nodes.slots()
        assert (slots.master(7), slots.master(8)) == (NEW, OLD)

    asyncio.run(work())


def test_an_error_is_raised_where_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    Told(monkeypatch, a=GoneError("gone"), b=GoneError("gone"))
    with pytest.raises(GoneError):
        asyncio.run(topology("a", "b").slots())
