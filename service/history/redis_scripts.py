"""What Redis does in one step: scripts, each run as a whole or, where it refuses, without any change.

The keys, after the prefix: `user:ID` is a sorted set of a user's events, the score the time, the member the
number of arrival in 15 digits and then the event as JSON, so that equal times are in the order of arrival;
`id:EVENT_ID` is an empty string for each stored event; `arrival` counts.
"""

import hashlib
from typing import NamedTuple

ARRIVAL_DIGITS = 15


class Script(NamedTuple):
    """A script and the name under which a Redis that has seen it knows it."""

    text: str
    sha: str


def _script(text: str) -> Script:
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


_DROP = """
local function drop(ids, members)
  for _, member in ipairs(members) do
    local read, event = pcall(cjson.decode, string.sub(member, 16))
    if read and type(event) == 'table' and type(event[1]) == 'string' then
      redis.call('UNLINK', ids .. event[1])
    end
  end
end
"""

# KEYS: arrival, then of each event its id key and its user key.
# ARGV: the prefix of id keys, the first time that is kept ('' for all), then of each event its time, its JSON
# and when its id key expires ('' for never). Everything that can be refused is looked at before anything is
# written: Redis doesn't take back what a script that fails has done.
APPEND = _script(
    _DROP
    + """
local ids, first = ARGV[1], ARGV[2]
local count = (#KEYS - 1) / 2
for place = 1, count do
  local known = redis.call('GET', KEYS[2 * place])
  local kind = redis.call('TYPE', KEYS[2 * place + 1]).ok
  if (known and known ~= '') or (kind ~= 'zset' and kind ~= 'none') then
    return redis.error_reply('WRONGTYPE a key of this prefix is not of a history')
  end
end
local arrival = redis.call('INCRBY', KEYS[1], count) - count
local stored = 0
for place = 1, count do
  local time, json, expiry = ARGV[3 * place], ARGV[3 * place + 1], ARGV[3 * place + 2]
  local fresh
  if expiry == '' then
    fresh = redis.call('SET', KEYS[2 * place], '', 'NX')
  else
    fresh = redis.call('SET', KEYS[2 * place], '', 'NX', 'PXAT', expiry)
  end
  if fresh then
    redis.call('ZADD', KEYS[2 * place + 1], time, string.format('%015d', arrival + place) .. json)
    stored = stored + 1
  end
end
for place = 1, count do
  local user = KEYS[2 * place + 1]
  if first == '' then
    redis.call('PERSIST', user)
  else
    drop(ids, redis.call('ZRANGEBYSCORE', user, '-inf', '(' .. first))
    redis.call('ZREMRANGEBYSCORE', user, '-inf', '(' .. first)
    local newest = redis.call('ZREVRANGE', user, 0, 0, 'WITHSCORES')[2]
    if newest then
      redis.call('PEXPIRE', user, math.max(newest - first, 1))
    end
  end
end
return stored
"""
)

# KEYS: the user. ARGV: the prefix of id keys, the first time that counts ('-inf' for all).
FORGET = _script(
    _DROP
    + """
local deleted = redis.call('ZCOUNT', KEYS[1], ARGV[2], '+inf')
drop(ARGV[1], redis.call('ZRANGE', KEYS[1], 0, -1))
redis.call('UNLINK', KEYS[1])
return deleted
"""
)
