"""The slot map of a Redis Cluster: the master of each of the 16,384 hash slots."""

from collections.abc import Sequence
from typing import Any

from redis.crc import key_slot

from turret.service.stores.redis.address import Node

SLOTS = 16_384


def slot_of(key: bytes | str | int) -> int:
    """The hash slot of a key."""
    return key_slot(key if isinstance(key, bytes) else str(key).encode())


class SlotMap:
    """The masters of the slots, and all nodes that a reply to CLUSTER SLOTS names."""

    def __init__(self, reply: object, asked: Node, epoch: int = 0) -> None:
        """Read the reply of the node `asked`, whose host stands for one left empty. Raises ValueError."""
        if not isinstance(reply, list):
            raise ValueError("the reply is no list of slots")
        self.epoch = epoch
        self.nodes: set[Node] = set()
        self._masters: list[Node | None] = [None] * SLOTS
        try:
            for first, last, *nodes in reply:
                named = [node_named(host, port, asked) for host, port, *_ in nodes]
                self.nodes.update(named)
                self._masters[first : last + 1] = [named[0]] * (last + 1 - first)
        except (TypeError, IndexError):
            raise ValueError("the reply is no list of slots") from None
        if len(self._masters) != SLOTS:
            raise ValueError("a range of slots is not valid")

    def master(self, slot: int) -> Node | None:
        """The master of a slot; None while no node serves it."""
        return self._masters[slot]

    def move(self, slot: int, node: Node) -> None:
        """Note what a redirection said."""
        self._masters[slot] = node
        self.nodes.add(node)

    def slots_by_master(self) -> dict[Node, frozenset[int]]:
        """The slots of each master."""
        found: dict[Node, set[int]] = {}
        for slot, node in enumerate(self._masters):
            if node:
                found.setdefault(node, set()).add(slot)
        return {node: frozenset(slots) for node, slots in found.items()}


def node_named(host: Any, port: Any, asked: Node) -> Node:
    """A node of a reply. Raises ValueError."""
    text = host.decode() if isinstance(host, bytes) else host or ""
    if not isinstance(text, str) or not isinstance(port, int):
        raise ValueError("the reply names no node")
    return Node(asked.host if text in ("", "?") else text, port)


def newest(maps: Sequence[SlotMap]) -> SlotMap:
    """The map of the node that has seen the last election."""
    return max(maps, key=lambda one: one.epoch)


def epoch_of(info: object) -> int:
    """The epoch in a reply to CLUSTER INFO; 0 where it is not told."""
    text = info.decode("utf-8", "replace") if isinstance(info, bytes) else ""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == "cluster_current_epoch" and value.isdigit():
            return int(value)
    return 0
