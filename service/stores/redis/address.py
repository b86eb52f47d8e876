"""Where things are: the address of a Redis or of a Redis Cluster, and the names of the keys there."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from turret.data.errors import without_credentials
from turret.service.errors import ServiceError

EXAMPLE = "redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE][?prefix=NAME:&replicas=COUNT]"
CLUSTER_EXAMPLE = (
    "redis+cluster://[[USER]:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][?prefix=NAME:&replicas=COUNT]"
)
_PREFIX = re.compile(r"[A-Za-z0-9._:-]{1,64}")


class Node(NamedTuple):
    """The place where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class RedisAddress:
    """A parsed address: `prefix` starts all keys, `replicas` must confirm a write.

    `nodes` are the Redis, or those of a cluster that are asked for the others. `options` are further ones of
    `redis.asyncio.Redis`.

    A cluster hashes the text between the first `{` and the next `}` of a key. The colon of a user's keys is
    inside the braces, so that this text is never empty; as the id is the rest of the key up to its last `}`,
    ids with braces need no escape, and still have all their keys in one slot.
    """

    nodes: tuple[Node, ...]
    is_cluster: bool
    prefix: str
    replicas: int
    options: Mapping[str, Any] = field(repr=False)

    def __str__(self) -> str:
        scheme = f"redis{'s' * self.options['ssl']}"
        if self.is_cluster:
            return f"{scheme}+cluster://{','.join(map(str, self.nodes))}"
        return f"{scheme}://{self.nodes[0]}/{self.options['db']}"

    def events(self, user: str) -> str:
        """The sorted set of a user's events."""
        return f"{self.prefix}user{{:{user}}}"

    def ids(self, user: str) -> str:
        """The sorted set of a user's event ids."""
        return f"{self.prefix}ids{{:{user}}}"

    def user_of(self, key: bytes) -> str | None:
        """The user whose events a key has; None for another key."""
        begin, end = self.events("\n").split("\n")
        text = key.decode("utf-8", "replace")
        return text[len(begin) : -len(end)] if text.startswith(begin) and text.endswith(end) else None

    def shared(self, name: str) -> str:
        """A key of the items or of the members' record, which are in one slot."""
        return f"{self.prefix}{{shared}}:{name}"


def read_address(address: str) -> RedisAddress:
    """Parse the address of a Redis or, with `+cluster`, of a cluster; `rediss` stands for TLS.

    Raises ServiceError, without the password.
    """
    scheme = address.partition(":")[0]
    is_cluster = scheme.endswith("+cluster")
    try:
        url = urlsplit(address)
        credentials, _, hosts = url.netloc.rpartition("@")
        username, _, password = credentials.partition(":")
        nodes = tuple(map(_node, hosts.split(",")))
        database = int(url.path.removeprefix("/") or "0")
        query = dict(parse_qsl(url.query, keep_blank_values=True, strict_parsing=bool(url.query)))
        prefix, replicas = query.pop("prefix", "turret:"), int(query.pop("replicas", "0"))
        if query or url.fragment or database < 0 or replicas < 0 or not _PREFIX.fullmatch(prefix):
            raise ValueError
        if database if is_cluster else len(nodes) > 1:  # a cluster has no databases
            raise ValueError
    except ValueError:
        raise ServiceError(
            f"{without_credentials(address)!r} is no Redis address; "
            f"write {CLUSTER_EXAMPLE if is_cluster else EXAMPLE} "
            f"({'rediss+cluster' if is_cluster else 'rediss'}:// for TLS; "
            "percent-encode special characters of a password, @ as %40)"
        ) from None
    options = {
        "db": database,
        "ssl": scheme.startswith("rediss"),
        "username": unquote(username) or None,
        "password": unquote(password) or None,
    }
    return RedisAddress(nodes, is_cluster, prefix, replicas, options)


def _node(text: str) -> Node:
    parts = urlsplit(f"//{text}")
    if not parts.hostname or parts.netloc != text:
        raise ValueError("no host")
    return Node(parts.hostname, parts.port or 6379)
