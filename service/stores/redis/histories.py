"""Histories in a Redis or a Redis Cluster.

A user has two sorted sets whose scores are the times of events: one of event ids, and one of events. The
member of an event is its arrival in 16 digits, microseconds by the clock of the server, followed by the event
as JSON, so that equal times sort by arrival. A script runs in one atomic step of the server, or refuses
without a change.

A command may reach a server that hangs long after its caller gave up. So a deletion leaves a mark for some
minutes, which each later append has to name: an append that was sent before the deletion stores nothing. The
mark is a member of the set of ids that can't be an id, as it is no UTF-8; its score is the time of its end. A
separate key would be missing for most users, and a cluster refuses scripts of present and missing keys while
their slot moves.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import orjson

from turret.service.settings import Settings
from turret.service.stores.contract import (
    ARRIVALS_KEPT,
    ARRIVALS_PAGE,
    COUNT_LIMIT,
    Arrival,
    Arrivals,
    Event,
    History,
    Moved,
    StoreKind,
    Stores,
    drop_expired,
    event_digest,
    oldest_kept,
)
from turret.service.stores.redis.client import Command, Node, RedisClient, read_address, script_run
from turret.service.stores.redis.shared import RedisItems, RedisRecords

Result = TypeVar("Result")

_LONG = 4_000  # reply texts, two an event; a longer reply is decoded in a thread, as it takes milliseconds
# One read of `scan` looks at so many keys, half of which hold events, and at so many events of a user.
_SCAN_KEYS, _SCAN_EVENTS = 200, 1_000
_MOVED_PORTION = 1_000  # events that `move` copies and then removes
_ARRIVAL_DIGITS = 16
_MARK_MS = 600_000  # far longer than a network or a server that hangs keeps a command
_CLAIM_MS = 60_000  # longer than a move whose caller waits; a move that fails leaves its claim
# The types of an event's fields: event id, item, kind, and the id of the answer of some events.
_TEXT_OR_NONE: frozenset[type] = frozenset({str, type(None)})
_TYPES: tuple[frozenset[type], ...] = (
    frozenset({str}),
    frozenset({int, str}),
    _TEXT_OR_NONE,
    _TEXT_OR_NONE,
)
_LAST_TIME = 2**53  # milliseconds that a score holds exactly

# KEYS: the events and the ids of each user, and the stream of arrivals, if they are listed. ARGV: the oldest
# time kept ('-inf' for all), the mark of each user ('' for none), then for each event the index of its user,
# its time, its id, its JSON and that of its arrival. Returns the places of the new events, joined by commas.
# If the present marks differ, returns them and changes nothing. Redis does not roll back a script that fails,
# so keys of another type are an error before the first write, and the first write is one that a full Redis
# refuses.
APPEND = """
local marks, users, is_late = {}, math.floor(#KEYS / 2), false
local stream = KEYS[2 * users + 1]
if stream then
  redis.call('XLEN', stream)
end
local time = redis.call('TIME')
for user = 1, users do
  redis.call('ZCARD', KEYS[2 * user - 1])
  local mark = redis.call('ZSCORE', KEYS[2 * user], '\\255')
  marks[user] = mark and tonumber(mark) > time[1] * 1000 and mark or ''
  is_late = is_late or marks[user] ~= ARGV[1 + user]
end
if is_late then
  return marks
end
local oldest = ARGV[1]
local arrival = time[1] * 1000000 + time[2]
local stored = {}
for first = users + 2, #ARGV, 5 do
  local user, time, id, json, listed = unpack(ARGV, first, first + 4)
  local events, ids = KEYS[2 * user - 1], KEYS[2 * user]
  local known = redis.call('ZSCORE', ids, id)
  if not known or tonumber(known) < tonumber(oldest) then
    redis.call('ZADD', ids, time, id)
    redis.call('ZADD', events, time, string.format('%016.0f', arrival + #stored) .. json)
    stored[#stored + 1] = (first - users - 2) / 5
    if stream then
      redis.call('XADD', stream, 'MAXLEN', '~', 100000, '*', 'e', listed)
    end
  end
end
for user = 1, users do
  local events, ids = KEYS[2 * user - 1], KEYS[2 * user]
  for _, key in ipairs({events, ids}) do
    redis.call('ZREMRANGEBYSCORE', key, '-inf', '(' .. oldest)
  end
  if marks[user] == '' then
    redis.call('ZREM', ids, '\\255')
  end
  for _, key in ipairs({events, ids}) do
    local newest = redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')[2]
    if oldest == '-inf' then
      redis.call('PERSIST', key)
    elseif newest then
      redis.call('PEXPIRE', key, math.max(newest - oldest, 1))
    end
  end
end
return table.concat(stored, ',')
"""

# KEYS: the user's events and ids. ARGV: the oldest time that counts or '-inf', and the milliseconds that the
# mark lasts. No two marks are the same. A full Redis sets the mark too, as this comes after the deletion.
FORGET = """
local deleted = redis.call('ZCOUNT', KEYS[1], ARGV[1], '+inf')
local time = redis.call('TIME')
local mark = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2]
mark = math.max(mark, (redis.call('ZSCORE', KEYS[2], '\\255') or 0) + 1)
redis.call('UNLINK', KEYS[1], KEYS[2])
redis.call('ZADD', KEYS[2], string.format('%.0f', mark), '\\255')
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return deleted
"""

# KEYS: the user's events and claim. ARGV: the user that the events are moved to, the milliseconds of the
# claim, the number of events. Returns the oldest events with their scores; none while another user has the
# claim.
CLAIM = """
if (redis.call('GET', KEYS[2]) or ARGV[1]) ~= ARGV[1] then
  return {}
end
local oldest = redis.call('ZRANGE', KEYS[1], 0, ARGV[3] - 1, 'WITHSCORES')
if #oldest > 0 then
  redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
end
return oldest
"""

# KEYS: the user's events, ids and claim. ARGV: '1' to end the claim, then members of events, each followed by
# its id.
REMOVE = """
if ARGV[1] == '1' then
  redis.call('DEL', KEYS[3])
end
for first = 2, #ARGV, 2 do
  if redis.call('ZREM', KEYS[1], ARGV[first]) == 1 then
    redis.call('ZREM', KEYS[2], ARGV[first + 1])
  end
end
"""


class RedisHistory:
    """A HistoryStore in one Redis (6.2 or later) and its replicas: every call is one round trip.

    In a cluster every call is one round trip for each user, all at the same time, and `append` is atomic for
    each user: after an error, some users may have their events, and repeating the call stores the others.

    The durability of the store depends on the server's settings (docs/histories.md). `connections` and
    `seconds` bound one process's connections and waits. It connects at the first call. Raises ServiceError
    for a faulty address.
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
        return await self._append(events, is_listed=True)

    async def _append(self, events: Sequence[Event], is_listed: bool) -> int:
        """Store events, and list the new ones among the arrivals.

        In a cluster the arrivals are not on the user's server, so a second call lists them: a process that
        dies between both leaves its last events out of what is popular, until the next start counts all.
        """
        users: dict[str, list[Event]] = {}
        for event in drop_expired(events, oldest_kept(self._keep_days)):
            users.setdefault(event.user, []).append(event)
        # One script writes the events of all users; in a cluster of one user, as all its keys have one slot.
        groups = [{user: batch} for user, batch in users.items()] if self._address.is_cluster else [users]
        marks: dict[str, bytes] = {}
        stored = 0
        while groups and users:
            scripts = [self._appending(group, marks, is_listed) for group in groups]
            replies = await self._redis.execute(scripts, is_write=True)
            new = [
                [event for batch in group.values() for event in batch][int(place)]
                for group, reply in zip(groups, replies, strict=True)
                if isinstance(reply, bytes)
                for place in reply.split(b",")
                if place
            ]
            stored += len(new)
            if new and is_listed and self._address.is_cluster:
                listing = ("XADD", self._arrivals, "MAXLEN", "~", ARRIVALS_KEPT, "*", "e")
                await self._redis.execute([[*listing, _encode_arrival(each)] for each in new], is_write=True)
            # These groups have users who were deleted a moment ago: their marks were not known.
            late = {place: reply for place, reply in enumerate(replies) if isinstance(reply, list)}
            groups = [groups[place] for place in late]
            for group, present in zip(groups, late.values(), strict=True):
                marks.update(zip(group, present, strict=True))
        return stored

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

    async def arrivals(self, after: str | None) -> Arrivals | None:
        key = self._arrivals
        start = "-" if after is None else f"({after}"
        commands: list[Command] = [
            ["XLEN", key],
            ["XRANGE", key, "-", "+", "COUNT", 1],
            ["XREVRANGE", key, "+", "-", "COUNT", 1],
            ["XRANGE", key, start, "+", "COUNT", 1 if after is None else ARRIVALS_PAGE],
        ]
        count, oldest, newest, entries = await self._redis.execute(commands)
        first, last = (_position(ends) for ends in (oldest, newest))
        if after is None:
            return Arrivals(_text(last))
        position = _position([[after.encode()]])
        if position > last or (count >= ARRIVALS_KEPT and position < first):
            return None
        events = self._decode(lambda rows: [Arrival(*orjson.loads(row)) for _, (_, row) in rows], entries)
        return Arrivals(_text(_position(entries[-1:])) if entries else after, events)

    async def _users_after(self, master: Node, cursor: int, count: int) -> tuple[int, list[str]]:
        """Look at some keys of a server; return the next cursor, 0 at the end, and users with events."""
        command: Command = ["SCAN", cursor, "MATCH", self._address.events("*"), "COUNT", count]
        replies = await self._redis.ask(master, [command])
        self._redis.raise_for_errors(replies)
        ((cursor_after, keys),) = replies
        users = dict.fromkeys(map(self._address.user_of, keys))
        return int(cursor_after), [user for user in users if user is not None]

    async def _scan_users(self, users: Sequence[str], first: int, last: int) -> AsyncIterator[list[Event]]:
        """Iterate over the events of some users; the first portions of all users are read together."""
        replies = await self._redis.execute([self._in_range(user, first, 0, last) for user in users])
        for user, reply in zip(users, replies, strict=True):
            events = self._events(user, reply)
            start, skipped = first, 0
            while events:
                yield events
                # Events of equal times keep the order of arrival, so the next read skips those already seen.
                newest = events[-1].time
                skipped = skipped * (newest == start) + sum(event.time == newest for event in events)
                start = newest
                is_more = len(events) == _SCAN_EVENTS
                command = self._in_range(user, start, skipped, last)
                events = self._events(user, (await self._redis.execute([command]))[0]) if is_more else []

    async def forget(self, user: str) -> int:
        deleted: int = await self._redis.run(FORGET, self._keys(user), [self._oldest(), _MARK_MS])
        return deleted

    async def move(self, user: str, to: str) -> Moved:
        # The two users may be on two servers, so a portion belongs to both of them for a moment.
        keys, claim, moved = self._keys(user), self._address.claim(user), Moved(0, 0)
        while True:
            reply = await self._redis.run(CLAIM, [keys[0], claim], [to, _CLAIM_MS, _MOVED_PORTION])
            events = self._events(to, reply)
            kept = drop_expired(events, oldest_kept(self._keep_days))
            new = await self._append(kept, is_listed=False)
            moved = Moved(moved.new + new, moved.known + len(kept) - new)
            pairs = zip(reply[::2], (event.event_id for event in events), strict=True)
            is_last = len(events) < _MOVED_PORTION
            if events:
                values = [int(is_last), *(part for pair in pairs for part in pair)]
                await self._redis.run(REMOVE, [*keys, claim], values)
            if is_last:
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

    def _keys(self, user: str) -> list[str]:
        return [self._address.events(user), self._address.ids(user)]

    @property
    def _arrivals(self) -> str:
        return self._address.shared("arrivals")

    def _appending(
        self, users: Mapping[str, Sequence[Event]], marks: Mapping[str, bytes], is_listed: bool
    ) -> Command:
        keys = [key for user in users for key in self._keys(user)]
        if is_listed and not self._address.is_cluster:
            keys.append(self._arrivals)
        values: list[bytes | str | int] = [self._oldest(), *(marks.get(user, b"") for user in users)]
        for index, events in enumerate(users.values(), 1):
            for event in events:
                values += [index, event.time, event.event_id, encode_event(event), _encode_arrival(event)]
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
    """Encode the fields that are neither in the key nor in the score: event id, item, kind, maybe answer id.

    Earlier releases read an event without an answer id, and take one with it for a damaged one.
    """
    answer = () if event.answer_id is None else (event.answer_id,)
    return orjson.dumps([event.event_id, event.item, event.kind, *answer])


def _encode_arrival(event: Event) -> bytes:
    return orjson.dumps([event_digest(event.user, event.event_id), event.item, event.time, event.kind])


def _position(entries: Sequence[Any]) -> tuple[int, int]:
    """The numbers of a stream's entry, of which the reply has one or none."""
    milliseconds, number = entries[0][0].decode().split("-") if entries else (0, 0)
    return int(milliseconds), int(number)


def _text(position: tuple[int, int]) -> str:
    return "{}-{}".format(*position)


def decode_events(user: str, reply: list[bytes]) -> list[Event]:
    """Decode members with their scores to events, in their order. Raises an error for foreign members."""
    pairs = zip(_fields(reply[::2]), _times(reply[1::2]), strict=True)
    return [Event(event_id, user, item, time, *rest) for (event_id, item, *rest), time in pairs]


def decode_history(reply: list[bytes]) -> History:
    """Decode members with their scores, newest first. Raises an error for foreign members."""
    pairs = zip(_fields(reply[-2::-2]), _times(reply[::-2]), strict=True)
    return History.of([(item, time, kind) for (_, item, kind, *_), time in pairs])


def _fields(members: list[bytes]) -> list[Any]:
    """Event id, item, kind and maybe the answer id of each member, parsed in one call."""
    fields: list[Any] = orjson.loads(b"[%b]" % b",".join([member[_ARRIVAL_DIGITS:] for member in members]))
    if len(fields) != len(members) or not {list}.issuperset(map(type, fields)):
        raise ValueError("a member is no event")
    lengths = {*map(len, fields)}
    if not lengths <= {3, 4}:
        raise ValueError("a member is no event")
    if len(lengths) > 1:
        fields = [[*values, None][:4] for values in fields]
    for values, types in zip(zip(*fields, strict=True), _TYPES, strict=False):
        if not types.issuperset(map(type, values)):
            raise TypeError("a member is no event")
    return fields


def _times(scores: list[bytes]) -> list[int]:
    times = [int(float(score)) for score in scores]
    if max(map(abs, times), default=0) > _LAST_TIME:
        raise OverflowError("a score is no time")
    return times


def _warnings(info: object, appendfsync: object, replicas: int | None) -> Iterator[str]:
    """Name the settings of a server that lose acknowledged events.

    `info` and `appendfsync` are the server's replies, or errors where the commands are not allowed. In a
    cluster, so many `replicas` have to confirm a write to a master; None for a single Redis.
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
