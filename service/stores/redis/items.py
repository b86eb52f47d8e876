"""Changed items in a Redis, or in one slot of a Redis Cluster, for a service on several machines."""

from turret.service.errors import ItemsUnavailableError
from turret.service.stores.contract import CHANGES_PAGE, Change, Changes
from turret.service.stores.redis.client import Failures, RedisClient, read_address

_CONNECTIONS = 4

# KEYS: the values by id, the ids by number. ARGV: the id, its value, the number of the change before it (or
# nothing: any). Returns the number, 0 if another change came before.
CHANGE = """
local before = redis.call('ZSCORE', KEYS[2], ARGV[1]) or 0
if ARGV[3] and tonumber(before) ~= tonumber(ARGV[3]) then
  return 0
end
local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2] or 0
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], string.format('%.0f', last + 1), ARGV[1])
return last + 1
"""

# ARGV: the id. Returns the id, the number and the value of its last change, or nothing.
LAST = """
local number = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not number then
  return {}
end
return {ARGV[1], tonumber(number), redis.call('HGET', KEYS[1], ARGV[1]) or ''}
"""

# ARGV: the number to start after, the limit. Returns the last number, then for each change the id, the number
# and the value.
SINCE = """
local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2] or 0
local result = {tonumber(last)}
local order = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
for index = 1, #order, 2 do
  result[#result + 1] = order[index]
  result[#result + 1] = tonumber(order[index + 1])
  result[#result + 1] = redis.call('HGET', KEYS[1], order[index]) or ''
end
return result
"""


class RedisItems:
    """An ItemStore in a Redis, under the prefix of its address; it connects at the first call.

    Its durability is that of histories there (docs/histories.md).
    """

    def __init__(self, address: str, seconds: float = 5.0) -> None:
        parsed = read_address(address)
        self._keys = [parsed.shared("items"), parsed.shared("items:order")]
        foreign = f"that holds no items (one of {', '.join(self._keys)})"
        failures = Failures(ItemsUnavailableError, ItemsUnavailableError, foreign)
        self._redis = RedisClient(parsed, _CONNECTIONS, seconds, failures)

    async def put(
        self, item: str, features: bytes, fields: bytes, time: int, after: int | None = None
    ) -> int:
        before = () if after is None else (after,)
        return await self._change(item, b"%d\n%s\n%s" % (time, features, fields), *before)

    async def withdraw(self, item: str, time: int) -> int:
        return await self._change(item, b"%d" % time)

    async def last(self, item: str) -> Change | None:
        found = await self._redis.run(LAST, self._keys, [item], is_write=False)
        return _read(*found) if found else None

    async def changes(self, since: int, limit: int = CHANGES_PAGE) -> Changes:
        last, *rest = await self._redis.run(SINCE, self._keys, [since, limit], is_write=False)
        page = [_read(*rest[first : first + 3]) for first in range(0, len(rest), 3)]
        return Changes(page[-1].number if len(page) == limit else last, page)

    async def close(self) -> None:
        await self._redis.close()

    async def _change(self, item: str, value: bytes, *before: int) -> int:
        number: int = await self._redis.run(CHANGE, self._keys, [item, value, *before])
        return number


def _read(item: bytes, number: int, value: bytes) -> Change:
    """Parse a value; a foreign one gets features that are no JSON, which readers ignore."""
    try:
        time, *parts = value.split(b"\n")
        features, fields = parts or (None, None)
        return Change(item.decode(), number, int(time), features, fields)
    except ValueError:
        return Change(item.decode("utf-8", "backslashreplace"), number, 0, value or b"?", b"")
