"""Changed items in a Redis, or in one slot of a Redis Cluster, for a service on several machines."""

from typing import Any

from turret.service.errors import HistoryUnavailableError, ItemsOvertakenError, ItemsUnavailableError
from turret.service.stores.contract import Change, Changes
from turret.service.stores.redis.address import read_address
from turret.service.stores.redis.calls import Command
from turret.service.stores.redis.cluster import connect
from turret.service.stores.redis.key_names import KeyNames

PAGE = 1_000  # changes that one script reads; the server runs nothing else meanwhile
_CONNECTIONS = 4

# KEYS: the last number, the values by id, the ids by number. ARGV: the id, its value, the highest number
# allowed ('' for any). Returns the number, or 0 without a change.
CHANGE = """
local last = tonumber(redis.call('GET', KEYS[1]) or '0')
if ARGV[3] ~= '' and last >= tonumber(ARGV[3]) then
  return 0
end
local number = redis.call('INCR', KEYS[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[3], number, ARGV[1])
return number
"""

# The same KEYS. ARGV: the number to start after, the limit. Returns the last number, then for each change the
# id, the number and the value.
SINCE = """
local result = {tonumber(redis.call('GET', KEYS[1]) or '0')}
local order = redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
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
        self._address = read_address(address)
        self._redis = connect(self._address, _CONNECTIONS, seconds)
        names = KeyNames(self._address.prefix, bool(self._address.nodes))
        self._keys = [names.shared(f"items{part}") for part in (":number", "", ":order")]

    async def put(
        self, item: str, features: bytes, fields: bytes, time: int, highest: int | None = None
    ) -> int:
        """Store an item; see ItemStore."""
        value = b"%d\n%s\n%s" % (time, features, fields)
        return await self._change(item, value, "" if highest is None else highest)

    async def withdraw(self, item: str, time: int) -> int:
        """Withdraw an item; see ItemStore."""
        return await self._change(item, b"%d" % time)

    async def changes(self, since: int) -> Changes:
        """Return the changes, read in pages; see ItemStore."""
        items: list[Change] = []
        while True:
            reply = await self._run(SINCE, [items[-1].number if items else since, PAGE], is_write=False)
            last, *rest = self._checked(reply, list)
            page = [_read(*rest[first : first + 3]) for first in range(0, len(rest), 3)]
            items += page
            if len(page) < PAGE:
                return Changes(last, _newest(items))

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.close()

    async def _change(self, item: str, value: bytes, highest: int | str = "") -> int:
        number: int = self._checked(await self._run(CHANGE, [item, value, highest]), int)
        if not number:
            raise ItemsOvertakenError
        return number

    async def _run(self, script: str, values: Command, is_write: bool = True) -> Any:
        try:
            return await self._redis.run(script, self._keys, values, is_write)
        except HistoryUnavailableError as error:
            raise ItemsUnavailableError(str(error)) from None

    def _checked(self, reply: Any, kind: type) -> Any:
        if not isinstance(reply, kind):
            raise ItemsUnavailableError(f"{self._address} sends replies that are not a Redis's")
        return reply


def _read(item: bytes, number: int, value: bytes) -> Change:
    """Parse a value; a foreign one gets features that are no JSON, which readers ignore."""
    try:
        time, *parts = value.split(b"\n")
        features, fields = parts or (None, None)
        return Change(item.decode(), number, int(time), features, fields)
    except ValueError:
        return Change(item.decode("utf-8", "backslashreplace"), number, 0, value or b"?", b"")


def _newest(items: list[Change]) -> list[Change]:
    """Each item once: an item that changes between two pages is in both."""
    return sorted({change.item: change for change in items}.values(), key=lambda change: change.number)
