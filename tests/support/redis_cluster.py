"""A real Redis Cluster for tests: three masters with a replica each, on the loopback."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from redis.crc import key_slot
from redis.exceptions import RedisError

from tests.support.ports import held_port
from tests.support.redis_server import LASTING, RedisServer, lasting_folder
from tests.support.until import until

MASTERS = 3
SLOTS = 16_384


class RedisCluster:
    """Three masters, and in the same order the replica of each; a failover takes one to two seconds."""

    def __init__(self, folder: Path, node_timeout: int = 600, **config: str) -> None:
        self.nodes = [
            RedisServer(
                folder / str(number),
                **{
                    "cluster-enabled": "yes",
                    "cluster-port": str(held_port(self)),
                    "cluster-node-timeout": "600",  # with a longer one they take longer to join
                    "cluster-replica-validity-factor": "0",
                    "repl-diskless-sync-delay": "0",
                    "repl-ping-replica-period": "1",
                    **config,
                },
            )
            for number in range(2 * MASTERS)
        ]
        self._join()
        for node in self.nodes:
            node.ask("CONFIG", "SET", "cluster-node-timeout", node_timeout)
            node.config["cluster-node-timeout"] = str(node_timeout)

    @property
    def masters(self) -> list[RedisServer]:
        return self.nodes[:MASTERS]

    @property
    def address(self) -> str:
        """The address, which names two of the nodes."""
        return f"redis+cluster://{','.join(f'127.0.0.1:{node.port}' for node in self.nodes[:2])}"

    def master_of(self, key: str, hanging: RedisServer | None = None) -> RedisServer:
        """The server that has the slot of a key now."""
        return self.owner(key_slot(key.encode()), hanging)

    def owner(self, slot: int, hanging: RedisServer | None = None) -> RedisServer:
        """The server that has a slot now, as a running node sees it that does not hang."""
        running = next(node for node in self.nodes if node.process.poll() is None and node is not hanging)
        for first, last, (_, port, *_), *_ in running.ask("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == port)
        raise AssertionError(f"nobody has the slot {slot}")

    def id_of(self, node: RedisServer) -> str:
        """The id of a node in the cluster."""
        told: Any = node.ask("CLUSTER", "MYID")
        return str(told.decode())

    def until_whole(self) -> None:
        """Wait until all nodes know all slots, and each master has its replica."""
        until(lambda: all(_is_whole(node) for node in self.nodes), "the cluster is whole")

    def kill(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            if node.process.poll() is None:
                node.kill()

    def _join(self) -> None:
        for number, node in enumerate(self.nodes):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for number, node in enumerate(self.masters):
            first, last = SLOTS * number // MASTERS, SLOTS * (number + 1) // MASTERS - 1
            node.ask("CLUSTER", "ADDSLOTSRANGE", first, last)
        for node in self.nodes[1:]:
            self.nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port, node.config["cluster-port"])
        until(
            lambda: all(len(node.ask("CLUSTER", "NODES").splitlines()) == 2 * MASTERS for node in self.nodes),
            "all nodes know each other",
        )
        for number, node in enumerate(self.nodes[MASTERS:]):
            node.ask("CLUSTER", "REPLICATE", self.id_of(self.nodes[number]))
        self.until_whole()


@contextmanager
def own_cluster(folder: Path, **options: Any) -> Iterator[RedisCluster]:
    """A cluster that ends with the test."""
    cluster = RedisCluster(folder, **options)
    try:
        yield cluster
    finally:
        cluster.kill()


@cache
def shared_cluster() -> RedisCluster:
    """The cluster for all tests of this process that only store something; it ends with them."""
    # Nobody kills its nodes: a long timeout, so that a busy machine causes no failover.
    return LASTING.enter_context(own_cluster(lasting_folder(), node_timeout=15_000, appendonly="no"))


def place_in_cluster(folder: Path) -> str:
    """An address whose keys are of one test, which has `folder`; see `redis_server.sweep`."""
    return f"{shared_cluster().address}?prefix=turret-test-{os.getpid()}-{folder.name}:"


def _is_whole(node: RedisServer) -> bool:
    with suppress(RedisError, OSError):
        shards = node.ask("CLUSTER", "SLOTS")
        is_linked = node.ask("INFO", "replication").get("master_link_status") != "down"
        covered = sum(last + 1 - first for first, last, *_ in shards)
        replicas = all(len(nodes) >= 2 for _, _, *nodes in shards)
        is_ok = b"cluster_state:ok" in node.ask("CLUSTER", "INFO")
        return covered == SLOTS and replicas and is_linked and is_ok
    return False
