"""Redis without a server: addresses, keys and replies."""

from typing import Any

import pytest
from redis.crc import key_slot

from turret.service.errors import ServiceError
from turret.service.stores.contract import Event
from turret.service.stores.redis.client import Node, read_address
from turret.service.stores.redis.histories import decode_events, encode_event

# Addresses


def test_an_address_has_defaults_and_is_shown_without_the_password() -> None:
    address = read_address("redis://host")
    assert (address.nodes, address.is_cluster) == ((Node("host", 6379),), False)
    assert address.options == {"db": 0, "ssl": False, "username": None, "password": None}
    assert (address.prefix, address.replicas) == ("turret:", 0)
    address = read_address("rediss://me:p%40ss%2Fw%3Ard@[::1]:7000/3?prefix=shop.1:&replicas=2")
    assert address.nodes == (Node("::1", 7000),)
    assert address.options == {"db": 3, "ssl": True, "username": "me", "password": "p@ss/w:rd"}
    assert (address.prefix, address.replicas) == ("shop.1:", 2)
    address = read_address("redis://me:secret@host:6380/1")
    assert str(address) == "redis://host:6380/1"
    assert "secret" not in repr(address)
    assert "me" not in repr(address)


def test_an_address_of_a_cluster_has_several_nodes() -> None:
    address = read_address("rediss+cluster://me:p%40ss@a,b:7000,[::1]:7001?prefix=shop:&replicas=1")
    assert address.nodes == (Node("a", 6379), Node("b", 7000), Node("::1", 7001))
    assert address.options == {"db": 0, "ssl": True, "username": "me", "password": "p@ss"}
    assert address.is_cluster
    assert (address.prefix, address.replicas) == ("shop:", 1)
    assert str(address) == "rediss+cluster://a:6379,b:7000,[::1]:7001"


WRONG = {
    "redis": [
        *("", "host:99999/0", "host:port/0", "host/-1", "host/0/1", "host/0#x", "[::1", "a,b/0"),
        *("host?prefix=", "host?prefix=a b", "host?replicas=-1", "host?replicas=x", "host?db=1"),
    ],
    "redis+cluster": ["", "a,", ",a", "a:x", "a/1", "a,b/2", "a?db=1", "a#x"],
}


@pytest.mark.parametrize(("scheme", "rest"), [(scheme, rest) for scheme in WRONG for rest in WRONG[scheme]])
def test_other_addresses_are_refused_without_the_password(scheme: str, rest: str) -> None:
    with pytest.raises(ServiceError) as caught:
        read_address(f"{scheme}://me:secret@{rest}")
    assert "write redis://" in str(caught.value)
    assert "secret" not in str(caught.value)


# Keys

IDS = ["", "7", "a b", "{", "}", "{}", "}{", "a}b", "{a}", "{a}b", ":", "{:7}", "é\n", "*", "user:7"]
ADDRESS = read_address("redis://host")


def test_all_keys_of_a_user_are_in_one_slot_and_tell_the_user() -> None:
    """Users are spread over the slots; the record of all members has one slot."""
    for user in IDS:
        keys = [ADDRESS.events(user), ADDRESS.ids(user)]
        assert len({key_slot(key.encode()) for key in keys}) == 1
        assert all(key.startswith("turret:") for key in keys)
    assert len({key_slot(ADDRESS.events(str(user)).encode()) for user in range(1_000)}) > 900
    assert len({key for user in IDS for key in (ADDRESS.events(user), ADDRESS.ids(user))}) == len(IDS) * 2
    assert [ADDRESS.user_of(ADDRESS.events(user).encode()) for user in IDS] == IDS
    shared = [ADDRESS.shared(name) for name in ("items", "items:order", "replicas:default:record")]
    assert [ADDRESS.user_of(key.encode()) for key in (ADDRESS.ids("u"), *shared)] == [None] * 4
    assert len({key_slot(key.encode()) for key in shared}) == 1


# Replies

EVENTS = [Event("a", "u", 1, -5), Event("b", "u", "1", 7, "view"), Event("ç\0", "u", 2**63 - 1, 2**47, "")]


def reply(*events: Event) -> list[Any]:
    """As a Redis gives them, the members and their scores in turn."""
    pairs = [(b"%016d" % place + encode_event(one), b"%d" % one.time) for place, one in enumerate(events)]
    return [value for pair in pairs for value in pair]


@pytest.mark.parametrize(
    ("member", "score"),
    [
        *((reply(EVENTS[0])[0], score) for score in (b"inf", b"nan", b"", b"x")),
        *((member, b"5") for member in (b"", b"x", b"0" * 15 + b'["e", 1, null]')),
        *((b"0" * 16 + text, b"5") for text in (b"", b"1", b'"text"', b'{"a": 1}', b'["e", 1]')),
        *((b"0" * 16 + text, b"5") for text in (b'["e", 1, null, 2]', b'["e", 1, null], ["f", 1, null]')),
    ],
)
def test_other_replies_are_refused_also_among_ours(member: bytes, score: bytes) -> None:
    assert decode_events("u", reply(*EVENTS)) == EVENTS
    for others in (reply(), reply(*EVENTS)):
        for place in range(0, len(others) + 1, 2):
            with pytest.raises((ValueError, TypeError, OverflowError)):
                decode_events("u", [*others[:place], member, score, *others[place:]])
