"""The address of a Redis, such as `redis://:PASSWORD@HOST:6379/0`, or of a Redis Cluster."""

import re
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from turret.data.errors import without_credentials
from turret.service.errors import ServiceError

EXAMPLE = "redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE][?prefix=NAME:&replicas=COUNT]"
CLUSTER_EXAMPLE = (
    "redis+cluster://[[USER]:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][?prefix=NAME:&replicas=COUNT]"
)
_PREFIX = re.compile(r"[A-Za-z0-9._:-]{1,64}")


class Node(NamedTuple):
    """Where a server listens."""

    host: str
    port: int


@dataclass(frozen=True)
class RedisAddress:
    """A parsed address: `prefix` starts all keys, `replicas` must confirm a write.

    `nodes` are those of a cluster that are asked for the others; none: it is a single Redis.
    """

    host: str
    port: int
    database: int
    tls: bool
    username: str | None = field(repr=False)
    password: str | None = field(repr=False)
    prefix: str = "turret:"
    replicas: int = 0
    nodes: tuple[Node, ...] = ()

    def __str__(self) -> str:
        if self.nodes:
            return f"redis{'s' * self.tls}+cluster://{','.join(_shown(node) for node in self.nodes)}"
        return f"redis{'s' * self.tls}://{_shown(Node(self.host, self.port))}/{self.database}"

    def of_node(self, node: Node) -> "RedisAddress":
        """The address of one node of a cluster."""
        return replace(self, host=node.host, port=node.port, nodes=())


def read_address(address: str) -> RedisAddress:
    """Parse the address of a Redis or, with `+cluster`, of a cluster; `rediss` stands for TLS.

    Raises ServiceError, without the password.
    """
    try:
        url = urlsplit(address)
        credentials, _, hosts = url.netloc.rpartition("@")
        username, _, password = credentials.partition(":")
        nodes = tuple(_node(host) for host in hosts.split(","))
        database = int(url.path.removeprefix("/") or "0")
        query = dict(parse_qsl(url.query, keep_blank_values=True, strict_parsing=bool(url.query)))
        prefix, replicas = query.pop("prefix", "turret:"), int(query.pop("replicas", "0"))
    except ValueError:
        raise _refusal(address) from None
    is_cluster = url.scheme.endswith("+cluster")
    if query or url.fragment or database < 0 or replicas < 0 or not _PREFIX.fullmatch(prefix):
        raise _refusal(address)
    if database if is_cluster else len(nodes) > 1:  # a cluster has no databases
        raise _refusal(address)
    return RedisAddress(
        host=nodes[0].host,
        port=nodes[0].port,
        database=database,
        tls=url.scheme.startswith("rediss"),
        username=unquote(username) or None,
        password=unquote(password) or None,
        prefix=prefix,
        replicas=replicas,
        nodes=nodes if is_cluster else (),
    )


def _node(text: str) -> Node:
    parts = urlsplit(f"//{text}")
    if not parts.hostname or parts.netloc != text:
        raise ValueError("no host")
    return Node(parts.hostname, parts.port or 6379)


def _shown(node: Node) -> str:
    host = f"[{node.host}]" if ":" in node.host else node.host
    return f"{host}:{node.port}"


def _refusal(address: str) -> ServiceError:
    is_cluster = "+cluster:" in address.partition("//")[0]
    return ServiceError(
        f"{without_credentials(address)!r} is no Redis address; "
        f"write {CLUSTER_EXAMPLE if is_cluster else EXAMPLE} "
        f"({'rediss+cluster' if is_cluster else 'rediss'}:// for TLS; "
        "percent-encode special characters of a password, @ as %40)"
    )
