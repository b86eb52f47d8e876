import pytest

from turret.service.errors import ServiceError
from turret.service.stores.contract import masked
from turret.service.stores.redis.address import Node, read_address


def test_what_is_not_said_has_a_default() -> None:
    address = read_address("redis://host")
    assert (address.host, address.port, address.database, address.tls) == ("host", 6379, 0, False)
    assert (address.username, address.password) == (None, None)
    assert (address.prefix, address.replicas) == ("turret:", 0)


def test_all_of_it() -> None:
    address = read_address("rediss://me:p%40ss%2Fw%3Ard@[::1]:7000/3?prefix=shop.1:&replicas=2")
    assert (address.host, address.port, address.database, address.tls) == ("::1", 7000, 3, True)
    assert (address.username, address.password) == ("me", "p@ss/w:rd")
    assert (address.prefix, address.replicas) == ("shop.1:", 2)


def test_it_is_shown_without_the_password() -> None:
    address = read_address("redis://me:secret@host:6380/1")
    assert str(address) == "redis://host:6380/1"
    assert "secret" not in repr(address)
    assert "me" not in repr(address)


@pytest.mark.parametrize(
    "rest",
    [
        *(
            "",
            ":6379/0",
            "host:99999/0",
            "host:port/0",
            "host/-1",
            "host/zero",
            "host/0/1",
            "host/0#x",
            "[::1",
        ),
        *(
            "host?prefix=",
            "host?prefix=a b",
            "host?prefix",
            "host?replicas=-1",
            "host?replicas=x",
            "host?db=1",
        ),
    ],
)
def test_others_are_refused_without_the_password(rest: str) -> None:
    with pytest.raises(ServiceError) as caught:
        read_address(f"redis://me:secret@{rest}")
    assert "redis://[[USER]:PASSWORD@]HOST" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("redis://me:secret@host/0", "redis://***@host/0"),
        ("redis://:a@b@host/0", "redis://***@host/0"),
        ("sqlite:///a/path", "sqlite:///a/path"),
        ("nonsense", "nonsense"),
        ("me:secret@host", "***@host"),
    ],
)
def test_what_may_be_a_password_is_masked(address: str, shown: str) -> None:
    assert masked(address) == shown


def test_several_nodes_of_a_cluster() -> None:
    address = read_address("rediss+cluster://me:p%40ss@a,b:7000,[::1]:7001?prefix=shop:&replicas=1")
    assert address.nodes == (Node("a", 6379), Node("b", 7000), Node("::1", 7001))
    assert (address.username, address.password, address.tls) == ("me", "p@ss", True)
    assert (address.prefix, address.replicas) == ("shop:", 1)
    assert str(address) == "rediss+cluster://a:6379,b:7000,[::1]:7001"
    node = address.of_node(Node("c", 1))
    assert (str(node), node.password, node.nodes) == ("rediss://c:1/0", "p@ss", ())


@pytest.mark.parametrize("rest", ["", "a,", ",a", "a:x", "a/1", "a,b/2", "a?db=1", "a#x"])
def test_other_addresses_of_clusters_are_refused(rest: str) -> None:
    with pytest.raises(ServiceError, match=r"write redis\+cluster://.*rediss\+cluster:// for TLS") as caught:
        read_address(f"redis+cluster://me:secret@{rest}")
    assert "secret" not in str(caught.value)


def test_one_redis_is_one_host() -> None:
    with pytest.raises(ServiceError, match=r"write redis://"):
        read_address("redis://a,b/0")
