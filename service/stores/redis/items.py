"""Changed items in a Redis, or in one slot of a Redis Cluster, for a service on several machines."""

from turret.service.errors import ItemsUnavailableError
from turret.service.stores.contract import CHANGES_PAGE, Change, Changes
from turret.service.stores.redis.address import KeyNames, read_address
from turret.service.stores.redis.client import Failures, RedisClient

_CONNECTIONS = 4

# KEYS: the last number, the values by id, the ids by number. A lost number is that of the last id. Scores are
# exact to 2^53; beyond, changes would share one and be hidden.
_LAST = """
local order = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')
local last = tonumber(redis.call('GET', KEYS[1]) or order[2] or '0')
if not last or not (last >= 0 and last < 9007199254740991) then
  return redis.error_reply('ERR ' .. KEYS[1] .. ' holds no number of changes; delete it, and the members ' ..
    'of ' .. KEYS[3] .. ' whose score is 2^53 - 1 or more')
end
"""

# ARGV: the id, its value. Returns the number.
CHANGE = f"""{_LAST}
redis.call('SET', KEYS[1], string.format('%.0f', last + 1))
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[3], last + 1, ARGV[1])
return last + 1
"""

# ARGV: the number to start after, the limit. Returns the last number, then for each change the id, the number
# and the value.
SINCE = f"""{_LAST}
local result = {{last}}
order = redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
for index = 1, #order, 2 do
  result[#result + 1] = order[index]
  result[#result + 1] = tonumber(order[index + 1])
  result[#result + 1] = redis.call('HGET', KEYS[2], order[index]) or ''
end
return result
"""


class RedisItems:
    """An ItemStore in a Redis, under the prefix of its address; it connects at the first call.

    Its durability is that of histories there (docs/histories.md).
    """

    def __init__(self, address: str, seconds: float = 5.0) -> None:
        parsed = read_address(address)
        names = KeyNames(parsed.prefix, bool(parsed.nodes))
        self._keys = [names.shared(f"items{part}") for part in (":number", "", ":order")]
        foreign = f"that holds no items (one of {', '.join(self._keys)})"
        failures = Failures(ItemsUnavailableError, ItemsUnavailableError, foreign)
        self._redis = RedisClient(parsed, _CONNECTIONS, seconds, failures)

    async def put(self, item: str, features: bytes, fields: bytes, time: int) -> int:
        """Store an item; see ItemStore."""
        return await self._change(item, b"%d\n%s\n%s" % (time, features, fields))

    async def withdraw(self, item: str, time: int) -> int:
        """Withdraw an item; see ItemStore."""
        return await self._change(item, b"%d" % time)

    async def changes(self, since: int, limit: int = CHANGES_PAGE) -> Changes:
        """Return the changes; see ItemStore."""
        last, *rest = await self._redis.run(SINCE, self._keys, [since, limit], is_write=False)
        page = [_read(*rest[first : first + 3]) for first in range(0, len(rest), 3)]
        return Changes(page[-1].number if len(page) == limit else last, page)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.close()

    async def _change(self, item: str, value: bytes) -> int:
        number: int = await self._redis.run(CHANGE, self._keys, [item, value])
        return number


def _read(item: bytes, number: int, value: bytes) -> Change:
    """Parse a value; a foreign one gets features that are no JSON, which readers ignore."""
    try:
        time, *parts = value.split(b"\n")
        features, fields = parts or (None, None)
        return Change(item.decode(), number, int(time), features, fields)
    except ValueError:
        return Change(item.decode("utf-8", "backslashreplace"), number, 0, value or b"?", b"")
