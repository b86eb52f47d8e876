"""Changed items in a Redis, or in one slot of a Redis Cluster, for a service on several machines."""

from collections.abc import Sequence

from turret.service.errors import ItemsUnavailableError
from turret.service.stores.contract import CHANGES_PAGE, Change, Changes, NewChange
from turret.service.stores.redis.client import Failures, RedisClient, read_address

_CONNECTIONS = 4
_AT_ONCE = 500  # changes of one call; a Redis runs nothing else meanwhile

# KEYS: the values by id, the ids by number. ARGV: of each change the id, its value, and the number of the
# change before it (or nothing: any). Returns the number of each, 0 if another change came before.
CHANGE = """
local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2] or 0
local numbers = {}
for index = 1, #ARGV, 3 do
  local item, after = ARGV[index], ARGV[index + 2]
  if after ~= '' and tonumber(redis.call('ZSCORE', KEYS[2], item) or 0) ~= tonumber(after) then
    numbers[#numbers + 1] = 0
  else
    last = last + 1
    redis.call('HSET', KEYS[1], item, ARGV[index + 1])
    redis.call('ZADD', KEYS[2], string.format('%.0f', last), item)
    numbers[#numbers + 1] = last
  end
end
return numbers
"""

# ARGV: ids. Returns the number (0: none) and the value of the last change of each.
LAST = """
local result = {}
for index, item in ipairs(ARGV) do
  result[2 * index - 1] = tonumber(redis.call('ZSCORE', KEYS[2], item) or 0)
  result[2 * index] = redis.call('HGET', KEYS[1], item) or ''
end
return result
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

    async def change(self, changes: Sequence[NewChange]) -> list[int]:
        numbers: list[int] = []
        for first in range(0, len(changes), _AT_ONCE):
            values = [part for change in changes[first : first + _AT_ONCE] for part in _written(change)]
            numbers += await self._redis.run(CHANGE, self._keys, values)
        return numbers

    async def last(self, items: Sequence[str]) -> list[Change | None]:
        found: list[Change | None] = []
        for first in range(0, len(items), _AT_ONCE):
            part = items[first : first + _AT_ONCE]
            flat = await self._redis.run(LAST, self._keys, part, is_write=False)
            pairs = zip(part, flat[::2], flat[1::2], strict=True)
            found += [
                _read(item.encode(), number, value) if number else None for item, number, value in pairs
            ]
        return found

    async def changes(self, since: int, limit: int = CHANGES_PAGE) -> Changes:
        last, *rest = await self._redis.run(SINCE, self._keys, [since, limit], is_write=False)
        page = [_read(*rest[first : first + 3]) for first in range(0, len(rest), 3)]
        return Changes(page[-1].number if len(page) == limit else last, page)

    async def close(self) -> None:
        await self._redis.close()


def _written(change: NewChange) -> tuple[str, bytes, int | str]:
    value = b"%d" % change.time
    if change.features is not None and change.fields is not None:
        value = b"%d\n%s\n%s" % (change.time, change.features, change.fields)
    return change.item, value, "" if change.after is None else change.after


def _read(item: bytes, number: int, value: bytes) -> Change:
    """Parse a value; a foreign one gets features that are no JSON, which readers ignore."""
    try:
        time, *parts = value.split(b"\n")
        features, fields = parts or (None, None)
        return Change(item.decode(), number, int(time), features, fields)
    except ValueError:
        return Change(item.decode("utf-8", "backslashreplace"), number, 0, value or b"?", b"")
