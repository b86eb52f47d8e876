"""Histories in a Redis or a Redis Cluster."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from turret.service.settings import Settings
from turret.service.stores.contract import (
    COUNT_LIMIT,
    Event,
    History,
    StoreKind,
    Stores,
    days,
    drop_expired,
    oldest_kept,
)
from turret.service.stores.redis.address import CLUSTER_EXAMPLE, EXAMPLE, KeyNames, Node, read_address
from turret.service.stores.redis.client import Call, Command, RedisClient
from turret.service.stores.redis.durability import QUESTIONS, durability_warnings, replica_warnings
from turret.service.stores.redis.events import APPEND, FORGET, decode_events, decode_history, encode_event
from turret.service.stores.redis.items import RedisItems
from turret.service.stores.redis.records import RedisRecords

Result = TypeVar("Result")

_LONG = 4_000  # reply texts, two an event; a longer reply is decoded in a thread, as it takes milliseconds
# Of one read of `scan`: keys to look at, half of which are of events, and events of a user.
_SCAN_KEYS, _SCAN_EVENTS = 200, 1_000
_RANDOM_KEYS = 20  # about half of them are of events, unless the database holds much else
_RANDOM_SCANS, _RANDOM_SCAN_KEYS = 20, 1_000  # then as many reads of a server visit as many keys each


class RedisHistory:
    """A HistoryStore in one Redis (6.2 or later) and its replicas: every call is one round trip.

    In a cluster it is one to each master concerned, all at the same time, and `append` is atomic for each
    user: after an error, a part of them may have their events, and the same call completes it.

    Its durability depends on the server's settings (docs/histories.md). `connections` and `seconds` bound one
    process's connections and waits. It connects at the first call. Raises ServiceError for a faulty address.
    """

    def __init__(
        self,
        address: str,
        connections: int = 16,
        seconds: float = 5.0,
        max_age: int | None = None,
    ) -> None:
        self._address = read_address(address)
        self._max_age = max_age
        self._keys = KeyNames(self._address.prefix, bool(self._address.nodes))
        self._redis = RedisClient(self._address, connections, seconds)

    async def append(self, events: Sequence[Event]) -> int:
        """Store events in one step of the server; see HistoryStore."""
        oldest = oldest_kept(self._max_age)
        unexpired = drop_expired(events, oldest)
        if not unexpired:
            return 0
        users: dict[str, list[Event]] = {}
        for event in unexpired:
            users.setdefault(event.user, []).append(event)
        groups = self._keys.append_groups(list(users))
        calls = [self._appending({user: users[user] for user in group}, oldest) for group in groups]
        return sum(await self._redis.run_all(APPEND, calls))

    async def recent(self, users: Sequence[str], limit: int) -> dict[str, History]:
        """Return users' newest events; see HistoryStore."""
        if not users:
            return {}
        replies = await self._redis.execute([self._newest(user, limit) for user in users])
        if sum(len(reply) for reply in replies if isinstance(reply, list)) > _LONG:
            return await asyncio.to_thread(self._histories, users, replies)
        return self._histories(users, replies)

    def _histories(self, users: Sequence[str], replies: Sequence[Any]) -> dict[str, History]:
        return {user: self._decode(decode_history, reply) for user, reply in zip(users, replies, strict=True)}

    async def events(self, user: str, limit: int) -> tuple[int, list[Event]]:
        """Return a user's count and newest events; see HistoryStore."""
        total, newest = await self._redis.execute([self._counted(user), self._newest(user, limit)])
        events = self._decode(partial(decode_events, user), newest)
        return min(total, COUNT_LIMIT), events

    async def scan(self, first: int, last: int) -> AsyncIterator[list[Event]]:
        """Iterate over the events of a range of times; see HistoryStore.

        This process holds the ids of the users, as SCAN may return a key twice.
        """
        seen: set[str] = set()
        masters: Mapping[Node, set[int]] = {}
        # Where slots have moved meanwhile, a master may have been read before it got the keys of others.
        while masters != (current := await self._redis.masters()):
            masters = current
            for master in masters:
                async for users in self._users_of(master):
                    new = [user for user in dict.fromkeys(users) if user not in seen]
                    seen.update(new)
                    async for events in self._scan_users(new, first, last):
                        yield events

    async def _users_of(self, master: Node, count: int = _SCAN_KEYS) -> AsyncIterator[list[str]]:
        """Iterate over the users whose events a server has; one may come twice."""
        cursor: bytes | str = "0"
        pattern = self._keys.events("*")
        while cursor != b"0":
            command: Command = ["SCAN", cursor, "MATCH", pattern, "COUNT", count, "TYPE", "zset"]
            replies = await self._redis.ask(master, [command])
            self._redis.raise_for_errors(replies)
            ((cursor, keys),) = replies
            yield self._users(keys)

    async def _scan_users(self, users: Sequence[str], first: int, last: int) -> AsyncIterator[list[Event]]:
        """Iterate over the events of some users; the first ones of all are read together."""
        first = max(first, oldest_kept(self._max_age))
        replies = await self._redis.execute([self._in_range(user, first, 0, last) for user in users])
        for user, reply in zip(users, replies, strict=True):
            events = self._ascending(user, reply)
            start, skipped = first, 0
            while events:
                yield events
                # Events of equal times keep the order of arrival, so that as many of them can be skipped.
                newest = events[-1].time
                skipped = skipped * (newest == start) + sum(event.time == newest for event in events)
                start = newest
                is_more = len(events) == _SCAN_EVENTS
                command = self._in_range(user, start, skipped, last)
                events = self._ascending(user, (await self._redis.execute([command]))[0]) if is_more else []

    async def random_user(self) -> str | None:
        """Return a user with events: of some random keys, else of the first keys that a scan visits."""
        masters = list(await self._redis.masters())
        random.shuffle(masters)
        for master in masters:
            keys = await self._redis.ask(master, [["RANDOMKEY"]] * _RANDOM_KEYS)
            users = self._users(key for key in dict.fromkeys(keys) if isinstance(key, bytes))
            if (user := await self._first_with_events(users)) is not None:
                return user
        for master in masters:
            pages = 0
            async for users in self._users_of(master, _RANDOM_SCAN_KEYS):
                if (user := await self._first_with_events(users)) is not None:
                    return user
                pages += 1
                if pages == _RANDOM_SCANS:
                    break
        return None

    def _users(self, keys: Iterable[bytes]) -> list[str]:
        """The users whose events some of the keys have."""
        users = (self._keys.user_of(key.decode("utf-8", "replace")) for key in keys)
        return [user for user in users if user is not None]

    async def _first_with_events(self, users: Sequence[str]) -> str | None:
        """The first of some users whose events have not all expired."""
        counts = await self._redis.execute([self._counted(user) for user in users])
        self._redis.raise_for_errors(counts)
        return next((user for user, count in zip(users, counts, strict=True) if count), None)

    async def forget(self, user: str) -> int:
        """Delete a user's events; see HistoryStore."""
        deleted: int = await self._redis.run(FORGET, self._keys.forget_keys(user), [self._oldest()])
        return deleted

    async def health_warnings(self) -> list[str]:
        """Warn of server settings that lose acknowledged events."""
        warnings = []
        for master in await self._redis.masters():
            replies = await self._redis.ask(master, QUESTIONS)
            warnings += durability_warnings(f"{master}", replies)
            if self._address.nodes:
                warnings += replica_warnings(f"{master}", self._address.replicas, replies)
        return warnings

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.close()

    def _appending(self, users: Mapping[str, Sequence[Event]], oldest: int) -> Call:
        """The keys and values of APPEND for the events of some users."""
        values: list[bytes | str | int] = [
            "" if self._max_age is None else oldest,
            int(self._keys.is_cluster),
        ]
        for index, events in enumerate(users.values(), 1):
            for event in events:
                values += [index, event.time, event.event_id, encode_event(event)]
        return self._keys.append_keys(list(users)), values

    def _ascending(self, user: str, reply: Any) -> list[Event]:
        return self._decode(partial(decode_events, user, is_ascending=True), reply)

    def _in_range(self, user: str, first: int, skipped: int, last: int) -> Command:
        key, end = self._keys.events(user), f"({last}"
        return ["ZRANGEBYSCORE", key, first, end, "WITHSCORES", "LIMIT", skipped, _SCAN_EVENTS]

    def _counted(self, user: str) -> Command:
        return ["ZCOUNT", self._keys.events(user), self._oldest(), "+inf"]

    def _newest(self, user: str, limit: int) -> Command:
        key, oldest = self._keys.events(user), self._oldest()
        return ["ZREVRANGEBYSCORE", key, "+inf", oldest, "WITHSCORES", "LIMIT", 0, limit]

    def _oldest(self) -> int:
        return oldest_kept(self._max_age)

    def _decode(self, decode: Callable[[Any], Result], reply: Any) -> Result:
        self._redis.raise_for_errors([reply])
        try:
            return decode(reply)
        except ValueError:
            raise self._redis.damaged() from None


def _open(settings: Settings) -> Stores:
    seconds = max(settings.history_timeout, settings.write_timeout)
    histories = RedisHistory(settings.store, settings.redis_connections, seconds, days(settings.keep_days))
    return Stores(histories, RedisItems(settings.store))


def _open_records(settings: Settings) -> RedisRecords:
    return RedisRecords(settings.store, settings.replica_group, settings.history_timeout)


REDIS = StoreKind(f"{EXAMPLE}, rediss://", _open, open_records=_open_records)
CLUSTER = replace(REDIS, form=f"{CLUSTER_EXAMPLE}, rediss+cluster://")
