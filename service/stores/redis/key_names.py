"""Names of keys in a Redis, and in a Redis Cluster, where the keys of one script share a hash slot.

A cluster hashes the text between the first `{` and the next `}` of a key, if it is not empty, else the whole
key. There the colon is inside the braces, so that the text is never empty; as the id is the rest of the key
up to its last `}`, ids with braces need no escape, and still have all their keys in one slot.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class KeyNames:
    """The keys under `prefix` in one Redis, or with hash tags in a cluster."""

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

    def events_pattern(self) -> str:
        """The pattern of all keys of events."""
        return self.events("*")

    def user_of(self, key: str) -> str | None:
        """The user whose events a key has; None for another key."""
        begin, end = self.events("\n").split("\n")
        if not (key.startswith(begin) and key.endswith(end)):
            return None
        return key[len(begin) : len(key) - len(end)]

    def _of_user(self, kind: str, user: str) -> str:
        return f"{self.prefix}{kind}{{:{user}}}" if self.is_cluster else f"{self.prefix}{kind}:{user}"
