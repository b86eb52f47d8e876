"""Events in a Redis: the keys of a user, the Lua scripts that write them, the members' encoding.

Each script runs in one atomic step of the server, or refuses without a change. Keys, after the prefix:
`user:ID` is a sorted set of a user's events; the score is the time, the member is the arrival number in 15
digits followed by the event as JSON, so that equal times sort by arrival. `ids:ID` is the set of the user's
event ids; `arrival` is a counter. In a cluster each user has a counter, in the slot of the other keys; it is
deleted with them (`key_names`).
"""

from typing import Any

import orjson

from turret.service.stores.contract import Event, History

_ARRIVAL_DIGITS = 15
_KINDS = frozenset({(str, item, kind) for item in (int, str) for kind in (str, type(None))})


# KEYS: the arrival counter, then for each user the events and the ids. ARGV: the oldest time kept ('' for
# all), 1 if the counter is that of one user and expires with the events, then for each event the index of its
# user, its time, its id and its JSON. All checks come before the first write: Redis does not roll back a
# script that fails. Where the sizes of a user's keys differ, Redis has evicted one, and the ids are rebuilt
# from the events.
APPEND = """
local function ids_of(members)
  local ids = {}
  for index, member in ipairs(members) do
    local ok, event = pcall(cjson.decode, string.sub(member, 16))
    if not (ok and type(event) == 'table' and type(event[1]) == 'string') then
      return nil
    end
    ids[index] = event[1]
  end
  return ids
end
local oldest = ARGV[1]
local users, count = (#KEYS - 1) / 2, (#ARGV - 2) / 4
local function refuse()
  return redis.error_reply('WRONGTYPE a key of this prefix is not of a history')
end
local function has_type(key, kind)
  local actual = redis.call('TYPE', key).ok
  return actual == kind or actual == 'none'
end
local rebuild = {}
for index = 1, users do
  local user, ids = KEYS[2 * index], KEYS[2 * index + 1]
  if not (has_type(user, 'zset') and has_type(ids, 'set')) then
    return refuse()
  end
  if redis.call('ZCARD', user) ~= redis.call('SCARD', ids) then
    local event_ids = ids_of(redis.call('ZRANGE', user, 0, -1))
    if not event_ids then
      return refuse()
    end
    rebuild[index] = event_ids
  end
end
local arrival = tonumber(redis.call('GET', KEYS[1]) or '0')
if not arrival or not (arrival >= 0 and arrival + count < 1e15) then
  return redis.error_reply('ERR ' .. KEYS[1] .. ' holds no number of arrivals; delete it: it only orders ' ..
    'events of one time')
end
redis.call('INCRBY', KEYS[1], count)
for index, event_ids in pairs(rebuild) do
  redis.call('UNLINK', KEYS[2 * index + 1])
  for _, id in ipairs(event_ids) do
    redis.call('SADD', KEYS[2 * index + 1], id)
  end
end
if oldest ~= '' then
  for index = 1, users do
    local expired = redis.call('ZRANGEBYSCORE', KEYS[2 * index], '-inf', '(' .. oldest)
    for _, id in ipairs(ids_of(expired) or {}) do
      redis.call('SREM', KEYS[2 * index + 1], id)
    end
    redis.call('ZREMRANGEBYSCORE', KEYS[2 * index], '-inf', '(' .. oldest)
  end
end
local stored = 0
for number = 1, count do
  local user = 2 * ARGV[4 * number - 1]
  if redis.call('SADD', KEYS[user + 1], ARGV[4 * number + 1]) == 1 then
    local member = string.format('%015d', arrival + number) .. ARGV[4 * number + 2]
    redis.call('ZADD', KEYS[user], ARGV[4 * number], member)
    stored = stored + 1
  end
end
for index = 1, users do
  local keys = {KEYS[2 * index], KEYS[2 * index + 1]}
  if ARGV[2] == '1' then
    keys[3] = KEYS[1]
  end
  local newest = redis.call('ZREVRANGE', keys[1], 0, 0, 'WITHSCORES')[2]
  for _, key in ipairs(keys) do
    if oldest == '' then
      redis.call('PERSIST', key)
    elseif newest then
      redis.call('PEXPIRE', key, math.max(newest - oldest, 1))
    end
  end
end
return stored
"""

# KEYS: the user's events and ids, and further ones to delete. ARGV: the oldest time that counts or '-inf'.
FORGET = """
local deleted = redis.call('ZCOUNT', KEYS[1], ARGV[1], '+inf')
redis.call('UNLINK', unpack(KEYS))
return deleted
"""


def encode_event(event: Event) -> bytes:
    """Encode the fields that are neither in the key nor in the score as JSON: event id, item, kind."""
    return orjson.dumps([event.event_id, event.item, event.kind])


def decode_events(user: str, reply: object, is_ascending: bool = False) -> list[Event]:
    """Decode members with their scores, newest first unless ascending, to events, oldest first.

    Raises ValueError.
    """
    fields, times = _parts(reply, is_ascending)
    return [
        Event(event_id, user, item, time, kind)
        for (event_id, item, kind), time in zip(fields, times, strict=True)
    ]


def decode_history(reply: object) -> History:
    """Decode the same reply to items and times alone. Raises ValueError."""
    fields, times = _parts(reply)
    return History([item for _, item, _ in fields], times)


def _parts(reply: object, is_ascending: bool = False) -> tuple[list[Any], list[int]]:
    """Members' fields and times, oldest first."""
    if not isinstance(reply, list) or len(reply) % 2:
        raise ValueError("the reply is no list of members and scores")
    if not {type(text) for text in reply} <= {bytes}:
        raise ValueError("a member or a score is no text")
    members, scores = (reply[::2], reply[1::2]) if is_ascending else (reply[-2::-2], reply[::-2])
    return _fields(members), [int(score) if score.isdigit() else _time(score) for score in scores]


def _fields(members: list[bytes]) -> list[Any]:
    """Event id, item and kind of each member, parsed in one call."""
    if members and not b"".join([member[:_ARRIVAL_DIGITS] for member in members]).isdigit():
        raise ValueError("a member has no arrival number")
    fields = orjson.loads(b"[%b]" % b",".join([member[_ARRIVAL_DIGITS:] for member in members]))
    if len(fields) != len(members) or not {type(event) for event in fields} <= {list}:
        raise ValueError("a member is no event")
    if not {tuple(map(type, event)) for event in fields} <= _KINDS:
        raise ValueError("a member's fields are not those of an event")
    return list(fields)


def _time(score: bytes) -> int:
    time = float(score)  # -5 or 2.5e+14, for example
    if not time.is_integer():
        raise ValueError("a score is no time")
    return int(time)
