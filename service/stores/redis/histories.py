"""Histories in a Redis or a Redis Cluster.

A user has two sorted sets whose scores are the times of events: one of event ids, and one of events. The
member of an event is its arrival in 16 digits, microseconds by the clock of the server, followed by the event
as JSON, so that equal times sort by arrival. A script runs in one atomic step of the server, or refuses
without a change.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import orjson

from turret.service.settings import Settings
from turret.service.stores.contract import (
    COUNT_LIMIT,
    Event,
    History,
    StoreKind,
    Stores,
    drop_expired,
    oldest_kept,
)
from turret.service.stores.redis.client import Command, Node, RedisClient, read_address, script_run
from turret.service.stores.redis.shared import RedisItems, RedisRecords

Result = TypeVar("Result")

_LONG = 4_000  # reply texts, two an event; a longer reply is decoded in a thread, as it takes milliseconds
# Of one read of `scan`: keys to look at, half of which are of events, and events of a user.
_SCAN_KEYS, _SCAN_EVENTS = 200, 1_000
_MOVED_PORTION = 1_000  # events that `move` copies and then removes
_ARRIVAL_DIGITS = 16

# KEYS: the events and the ids of each user. ARGV: the oldest time kept ('-inf' for all), then for each event
# the index of its user, its time, its id and its JSON. Redis does not roll back a script that fails, so keys
# of another type are an error before the first write, which is one that a full Redis refuses.
APPEND = """
for _, key in ipairs(KEYS) do
  redis.call('ZCARD', key)
end
local oldest = ARGV[1]
local time = redis.call('TIME')
local arrival = time[1] * 1000000 + time[2]
local stored = 0
for first = 2, #ARGV, 4 do
  local user, time, id, json = unpack(ARGV, first, first + 3)
  local known = redis.call('ZSCORE', KEYS[2 * user], id)
  if not known or tonumber(known) < tonumber(oldest) then
    redis.call('ZADD', KEYS[2 * user], time, id)
    redis.call('ZADD', KEYS[2 * user - 1], time, string.format('%016.0f', arrival + stored) .. json)
    stored = stored + 1
  end
end
for _, key in ipairs(KEYS) do
  redis.call('ZREMRANGEBYSCORE', key, '-inf', '(' .. oldest)
  local newest = redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')[2]
  if oldest == '-inf' then
    redis.call('PERSIST', key)
  elseif newest then
    redis.call('PEXPIRE', key, math.max(newest - oldest, 1))
  end
end
return stored
"""

# KEYS: the user's events and ids. ARGV: the oldest time that counts or '-inf'.
FORGET = """
local deleted = redis.call('ZCOUNT', KEYS[1], ARGV[1], '+inf')
redis.call('UNLINK', unpack(KEYS))
return deleted
"""

# KEYS: the user's events and ids. ARGV: members of events, each followed by its id.
REMOVE = """
for first = 1, #ARGV, 2 do
  if redis.call('ZREM', KEYS[1], ARGV[first]) == 1 then
    redis.call('ZREM', KEYS[2], ARGV[first + 1])
  end
end
"""


class RedisHistory:
    """A HistoryStore in one Redis (6.2 or later) and its replicas: every call is one round trip.

    In a cluster it is one for each user, all at the same time, and `append` is atomic for each: after an
    error, a part of them may have their events, and the same call completes it.

    Its durability depends on the server's settings (docs/histories.md). `connections` and `seconds` bound one
    process's connections and waits. It connects at the first call. Raises ServiceError for a faulty address.
    """

    def __init__(
        self,
        address: str,
        connections: int = 16,
        seconds: float = 5.0,
        keep_days: float | None = None,
    ) -> None:
        self._address = read_address(address)
        self._keep_days = keep_days
        self._redis = RedisClient(self._address, connections, seconds)

    async def append(self, events: Sequence[Event]) -> int:
        users: dict[str, list[Event]] = {}
        for event in drop_expired(events, oldest_kept(self._keep_days)):
            users.setdefault(event.user, []).append(event)
        # One script writes those of all users; in a cluster of one, as its keys have to be in one slot.
        groups = [{user: own} for user, own in users.items()] if self._address.is_cluster else [users]
        scripts = [self._appending(group) for group in groups if group]
        return sum(await self._redis.execute(scripts, is_write=True))

    async def recent(self, users: Sequence[str], limit: int) -> dict[str, History]:
        replies = await self._redis.execute([self._newest(user, limit) for user in users])

        def decode() -> dict[str, History]:
            return {
                user: self._decode(decode_history, reply) for user, reply in zip(users, replies, strict=True)
            }

        return await asyncio.to_thread(decode) if sum(map(len, replies)) > _LONG else decode()

    async def events(self, user: str, limit: int) -> tuple[int, list[Event]]:
        counted: Command = ["ZCOUNT", self._address.events(user), self._oldest(), "+inf"]
        total, newest = await self._redis.execute([counted, self._newest(user, limit)])
        return min(total, COUNT_LIMIT), self._events(user, newest)[::-1]

    async def scan(self, first: int, last: int) -> AsyncIterator[list[Event]]:
        # This process holds the ids of the users, as SCAN may return a key twice.
        seen: set[str] = set()
        first = max(first, oldest_kept(self._keep_days))
        for master in await self._redis.masters():
            cursor = None
            while cursor != 0:
                cursor, users = await self._users_after(master, cursor or 0, _SCAN_KEYS)
                new = [user for user in users if user not in seen]
                seen.update(new)
                async for events in self._scan_users(new, first, last):
                    yield events

    async def _users_after(self, master: Node, cursor: int, count: int) -> tuple[int, list[str]]:
        """Look at some keys of a server; return the next cursor, 0 at the end, and users with events."""
        command: Command = ["SCAN", cursor, "MATCH", self._address.events("*"), "COUNT", count]
        replies = await self._redis.ask(master, [command])
        self._redis.raise_for_errors(replies)
        ((cursor_after, keys),) = replies
        users = dict.fromkeys(map(self._address.user_of, keys))
        return int(cursor_after), [user for user in users if user is not None]

    async def _scan_users(self, users: Sequence[str], first: int, last: int) -> AsyncIterator[list[Event]]:
        """Iterate over the events of some users; the first ones of all are read together."""
        replies = await self._redis.execute([self._in_range(user, first, 0, last) for user in users])
        for user, reply in zip(users, replies, strict=True):
            events = self._events(user, reply)
            start, skipped = first, 0
            while events:
                yield events
                # Events of equal times keep the order of arrival, so that as many of them can be skipped.
                newest = events[-1].time
                skipped = skipped * (newest == start) + sum(event.time == newest for event in events)
                start = newest
                is_more = len(events) == _SCAN_EVENTS
                command = self._in_range(user, start, skipped, last)
                events = self._events(user, (await self._redis.execute([command]))[0]) if is_more else []

    async def forget(self, user: str) -> int:
        keys = [self._address.events(user), self._address.ids(user)]
        deleted: int = await self._redis.run(FORGET, keys, [self._oldest()])
        return deleted

    async def move(self, user: str, to: str) -> int:
        # Two users may be on two servers, so a portion is with both of them for a moment.
        keys, moved = [self._address.events(user), self._address.ids(user)], 0
        while True:
            (reply,) = await self._redis.execute([["ZRANGE", keys[0], 0, _MOVED_PORTION - 1, "WITHSCORES"]])
            events = self._events(to, reply)
            moved += await self.append(events)
            pairs = zip(reply[::2], (event.event_id for event in events), strict=True)
            if events:
                await self._redis.run(REMOVE, keys, [part for pair in pairs for part in pair])
            if len(events) < _MOVED_PORTION:
                return moved

    async def health_warnings(self) -> list[str]:
        warnings = []
        for master in await self._redis.masters():
            info, sync = await self._redis.ask(master, [["INFO"], ["CONFIG", "GET", "appendfsync"]])
            replicas = self._address.replicas if self._address.is_cluster else None
            warnings += [f"{master} {warning}" for warning in _warnings(info, sync, replicas)]
        return warnings

    async def close(self) -> None:
        await self._redis.close()

    def _appending(self, users: Mapping[str, Sequence[Event]]) -> Command:
        keys = [key for user in users for key in (self._address.events(user), self._address.ids(user))]
        values: list[bytes | str | int] = [self._oldest()]
        for index, events in enumerate(users.values(), 1):
            for event in events:
                values += [index, event.time, event.event_id, encode_event(event)]
        return script_run(APPEND, keys, values)

    def _in_range(self, user: str, first: int, skipped: int, last: int) -> Command:
        key, end = self._address.events(user), f"({last}"
        return ["ZRANGEBYSCORE", key, first, end, "WITHSCORES", "LIMIT", skipped, _SCAN_EVENTS]

    def _newest(self, user: str, limit: int) -> Command:
        key, oldest = self._address.events(user), self._oldest()
        return ["ZREVRANGEBYSCORE", key, "+inf", oldest, "WITHSCORES", "LIMIT", 0, limit]

    def _oldest(self) -> str | int:
        return "-inf" if self._keep_days is None else oldest_kept(self._keep_days)

    def _events(self, user: str, reply: Any) -> list[Event]:
        return self._decode(lambda reply: decode_events(user, reply), reply)

    def _decode(self, decode: Callable[[Any], Result], reply: Any) -> Result:
        try:
            return decode(reply)
        except (ValueError, TypeError, OverflowError):
            raise self._redis.damaged() from None


def encode_event(event: Event) -> bytes:
    """Encode the fields that are neither in the key nor in the score as JSON: event id, item, kind."""
    return orjson.dumps([event.event_id, event.item, event.kind])


def decode_events(user: str, reply: list[bytes]) -> list[Event]:
    """Decode members with their scores to events, in their order. Raises an error for others."""
    pairs = zip(_fields(reply[::2]), reply[1::2], strict=True)
    return [Event(event_id, user, item, int(float(score)), kind) for (event_id, item, kind), score in pairs]


def decode_history(reply: list[bytes]) -> History:
    """Decode members with their scores, newest first. Raises an error for others."""
    pairs = zip(_fields(reply[-2::-2]), reply[::-2], strict=True)
    return History.of([(item, int(float(score)), kind) for (_, item, kind), score in pairs])


def _fields(members: list[bytes]) -> list[Any]:
    """Event id, item and kind of each member, parsed in one call."""
    fields: list[Any] = orjson.loads(b"[%b]" % b",".join([member[_ARRIVAL_DIGITS:] for member in members]))
    if len(fields) != len(members):
        raise ValueError("a member is no event")
    return fields


def _warnings(info: object, appendfsync: object, replicas: int | None) -> Iterator[str]:
    """Name the settings of a server that lose acknowledged events.

    `info` and `appendfsync` are its replies, or errors where they are not allowed; `replicas` have to confirm
    a write to a master of a cluster.
    """
    text = info.decode("utf-8", "replace") if isinstance(info, bytes) else ""
    values = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    if not values:
        yield "doesn't allow INFO; make sure that it has appendonly yes and maxmemory-policy noeviction"
    elif values.get("aof_enabled") != "1":
        yield "has no append-only file, so acknowledged events are lost when it stops; set appendonly yes"
    elif appendfsync == [b"appendfsync", b"no"]:
        yield "loses half a minute of events in a power failure; set appendfsync everysec or always"
    policy = values.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and values.get("maxmemory", "0") != "0":
        yield f"evicts histories when its memory is full ({policy}); set maxmemory-policy noeviction"
    if replicas == 0 and any(name.startswith("slave") and "online" in values[name] for name in values):
        yield "loses events in a failover, as its replicas get them later; add ?replicas=1 to the address"


def _open(settings: Settings) -> Stores:
    seconds = max(settings.history_timeout, settings.write_timeout)
    histories = RedisHistory(settings.store, seconds=seconds, keep_days=settings.keep_days)
    return Stores(histories, RedisItems(settings.store))


def _open_records(settings: Settings) -> RedisRecords:
    return RedisRecords(settings.store, settings.replica_group, settings.history_timeout)


REDIS = StoreKind(_open, open_records=_open_records)
