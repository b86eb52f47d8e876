"""Events in a Redis: the Lua scripts that write a user's keys, and the members' encoding.

Each script runs in one atomic step of the server, or refuses without a change. A user has two sorted sets
whose scores are the times of events: one of event ids, and one of events. The member of an event is its
arrival in 16 digits, microseconds by the clock of the server, followed by the event as JSON, so that equal
times sort by arrival.
"""

from typing import Any

import orjson

from turret.service.stores.contract import Event, History

_ARRIVAL_DIGITS = 16
_KINDS = frozenset({(str, item, kind) for item in (int, str) for kind in (str, type(None))})

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


def encode_event(event: Event) -> bytes:
    """Encode the fields that are neither in the key nor in the score as JSON: event id, item, kind."""
    return orjson.dumps([event.event_id, event.item, event.kind])


def decode_events(user: str, reply: list[Any]) -> list[Event]:
    """Decode members with their scores to events, in their order.

    Raises ValueError, TypeError or OverflowError for others.
    """
    return [
        Event(event_id, user, item, time, kind)
        for (event_id, item, kind), time in zip(_fields(reply[::2]), _times(reply[1::2]), strict=True)
    ]


def decode_history(reply: list[Any]) -> History:
    """Decode members with their scores, newest first. Raises the same errors."""
    return History([item for _, item, _ in _fields(reply[-2::-2])], _times(reply[::-2]))


def _fields(members: list[bytes]) -> list[Any]:
    """Event id, item and kind of each member, parsed in one call."""
    fields: list[Any] = orjson.loads(b"[%b]" % b",".join([member[_ARRIVAL_DIGITS:] for member in members]))
    if len(fields) != len(members) or not {type(event) for event in fields} <= {list}:
        raise ValueError("a member is no event")
    if not {tuple(map(type, event)) for event in fields} <= _KINDS:
        raise ValueError("a member's fields are not those of an event")
    return fields


def _times(scores: list[bytes]) -> list[int]:
    return [int(float(score)) for score in scores]  # 7, -5 or 2.5e+14, for example
