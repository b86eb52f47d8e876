"""Where things are: the address of a Redis or of a Redis Cluster, and the names of its keys."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
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

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


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
            return f"redis{'s' * self.tls}+cluster://{','.join(map(str, self.nodes))}"
        return f"redis{'s' * self.tls}://{Node(self.host, self.port)}/{self.database}"


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


@dataclass(frozen=True)
class KeyNames:
    """The keys under `prefix` in one Redis, or with hash tags in a cluster.

    A cluster hashes the text between the first `{` and the next `}` of a key, if it is not empty, else the
    whole key. There the colon is inside the braces, so that the text is never empty; as the id is the rest of
    the key up to its last `}`, ids with braces need no escape, and still have all their keys in one slot.
    """

    prefix: str
    is_cluster: bool = False

    def events(self, user: str) -> str:
        """The sorted set of a user's events."""
        return self._of_user("user", user)

    def ids(self, user: str) -> str:
        """The set of a user's event ids."""
        return self._of_user("ids", user)

    def arrival(self, user: str) -> str:
        """The counter of arrivals: one for all users, in a cluster one for each."""
        return self._of_user("arrival", user) if self.is_cluster else f"{self.prefix}arrival"

    def append_groups(self, users: Sequence[str]) -> list[Sequence[str]]:
        """Divide users into those whose events one script may write: all, in a cluster each alone."""
        return [[user] for user in users] if self.is_cluster else [users]

    def append_keys(self, users: Sequence[str]) -> list[str]:
        """The keys of APPEND for one group of users."""
        return [
            self.arrival(users[0]),
            *(key for user in users for key in (self.events(user), self.ids(user))),
        ]

    def forget_keys(self, user: str) -> list[str]:
        """The keys that only this user has."""
        own_counter = [self.arrival(user)] if self.is_cluster else []
        return [self.events(user), self.ids(user), *own_counter]

    def shared(self, name: str) -> str:
        """A key of the items or of the replicas' record; in a cluster all of them are in one slot."""
        return f"{self.prefix}{{shared}}:{name}" if self.is_cluster else f"{self.prefix}{name}"

    def user_of(self, key: str) -> str | None:
        """The user whose events a key has; None for another key."""
        begin, end = self.events("\n").split("\n")
        if not (key.startswith(begin) and key.endswith(end)):
            return None
        return key[len(begin) : len(key) - len(end)]

    def _of_user(self, kind: str, user: str) -> str:
        return f"{self.prefix}{kind}{{:{user}}}" if self.is_cluster else f"{self.prefix}{kind}:{user}"


def _node(text: str) -> Node:
    parts = urlsplit(f"//{text}")
    if not parts.hostname or parts.netloc != text:
        raise ValueError("no host")
    return Node(parts.hostname, parts.port or 6379)


def _refusal(address: str) -> ServiceError:
    is_cluster = "+cluster:" in address.partition("//")[0]
    return ServiceError(
        f"{without_credentials(address)!r} is no Redis address; "
        f"write {CLUSTER_EXAMPLE if is_cluster else EXAMPLE} "
        f"({'rediss+cluster' if is_cluster else 'rediss'}:// for TLS; "
        "percent-encode special characters of a password, @ as %40)"
    )
