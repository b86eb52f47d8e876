from typing import Any

import pytest

from turret.service.stores.redis.address import Node
from turret.service.stores.redis.slots import SlotMap, epoch_of, newest, node_named, slot_of

ASKED = Node("asked", 1)
REPLY = [
    [0, 99, [b"10.0.0.1", 7000, b"id1"], [b"10.0.0.2", 7001, b"id2", []]],
    [100, 16_382, [b"", 7002, b"id3"]],
]


def test_a_slot_is_that_of_the_specification() -> None:
    """The values of the Redis Cluster specification and of CLUSTER KEYSLOT."""
    assert slot_of("123456789") == 0x31C3
    assert slot_of("{user1000}.following") == slot_of(b"{user1000}.followers") == slot_of("user1000")
    assert slot_of("foo{}{bar}") != slot_of("bar")


def test_masters_and_other_nodes_are_read_from_a_reply() -> None:
    slots = SlotMap(REPLY, ASKED)
    assert slots.master(0) == slots.master(99) == Node("10.0.0.1", 7000)
    assert slots.master(100) == Node("asked", 7002)
    assert slots.master(16_383) is None
    assert slots.nodes == {Node("10.0.0.1", 7000), Node("10.0.0.2", 7001), Node("asked", 7002)}
    assert {node: len(owned) for node, owned in slots.slots_by_master().items()} == {
        Node("10.0.0.1", 7000): 100,
        Node("asked", 7002): 16_283,
    }


def test_a_moved_slot_has_another_master() -> None:
    slots = SlotMap(REPLY, ASKED)
    slots.move(5, Node("new", 7))
    assert (slots.master(5), slots.master(6)) == (Node("new", 7), Node("10.0.0.1", 7000))
    assert Node("new", 7) in slots.nodes


@pytest.mark.parametrize(
    "reply",
    [
        None,
        b"OK",
        5,
        [b"x"],
        [[0, 1]],
        [[0, b"1", [b"h", 1]]],
        [[0, 99, [b"h", b"x"]]],
        [[0, 99_999, [b"h", 1]]],
    ],
)
def test_other_replies_are_refused(reply: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        SlotMap(reply, ASKED)


def test_the_map_of_the_last_election_counts() -> None:
    """A node that was cut off answers, too, and with an old map."""
    old, new = SlotMap(REPLY, ASKED, epoch_of(b"a:b\r\ncluster_current_epoch:6\r\n")), SlotMap([], ASKED, 7)
    assert newest([old, new]) is newest([new, old]) is new
    assert old.epoch == 6
    assert epoch_of(ValueError()) == epoch_of(b"cluster_current_epoch:x") == 0


@pytest.mark.parametrize(
    ("host", "named"), [(b"h", "h"), ("h", "h"), ("", "asked"), (None, "asked"), ("?", "asked")]
)
def test_a_node_without_a_host_has_that_of_the_asked(host: Any, named: str) -> None:
    assert node_named(host, 5, ASKED) == Node(named, 5)
