"""The state that members share in a Redis, in one slot of a cluster: record, reports, changed items."""

from collections.abc import Sequence

from turret.service.errors import ItemsUnavailableError, ReplicasUnavailableError
from turret.service.stores.contract import CHANGES_PAGE, Change, Changes, Member, NewChange, Revision
from turret.service.stores.redis.client import Command, Failures, RedisClient, read_address

_CONNECTIONS = 4
_AT_ONCE = 500  # changes of one call; a Redis runs nothing else during the call

# KEYS: the record. ARGV: the expected record ('' for none), the new record. Returns the record afterwards.
# Its revision is a time in microseconds, so that a record that was lost and is written again has another
# revision.
SWAP = """
local record = redis.call('HGET', KEYS[1], 'record') or ''
if record ~= ARGV[1] then
  return record
end
local time = redis.call('TIME')
local last = tonumber(redis.call('HGET', KEYS[1], 'revision') or '0')
local revision = math.max(time[1] * 1000000 + time[2], last + 1) -- the clock may have been set back
redis.call('HSET', KEYS[1], 'record', ARGV[2], 'revision', string.format('%.0f', revision))
return ARGV[2]
"""

# KEYS: the reports by member, each after its time in milliseconds. ARGV: the member ('' writes nothing), its
# report, the milliseconds after which a silent member is forgotten. Returns for each member the name, the age
# of its report in milliseconds, and the report.
MEMBERS = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[1] ~= '' then
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f ', now) .. ARGV[2])
end
local result = {}
local reports = redis.call('HGETALL', KEYS[1])
for index = 1, #reports, 2 do
  local reported, report = string.match(reports[index + 1], '^(%d+) (.*)$')
  local age = now - (tonumber(reported) or 0)
  if ARGV[1] ~= '' and age > tonumber(ARGV[3]) then
    redis.call('HDEL', KEYS[1], reports[index])
  else
    result[#result + 1] = reports[index]
    result[#result + 1] = age
    result[#result + 1] = report or ''
  end
end
return result
"""

# KEYS: the lease. ARGV: its holder, the milliseconds that it lasts, 0 to return it. Returns 0 if another
# holder has it.
LEASE = """
if (redis.call('GET', KEYS[1]) or ARGV[1]) ~= ARGV[1] then
  return 0
end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return 1
"""


class RedisRecords:
    """A RecordStore in a Redis, under the prefix of its address and the name of the group.

    The record and its revision are fields of one key, so that neither is lost without the other.
    """

    def __init__(self, address: str, group: str, seconds: float) -> None:
        self._address = read_address(address)
        parts = ("record", "reports", "lease")
        keys = [self._address.shared(f"replicas:{group}:{part}") for part in parts]
        self._record, self._reports, self._lease = keys
        self._items = self._address.shared("items:order")
        foreign = f"of another service (one of {', '.join(keys)}, {self._items})"
        failures = Failures(ReplicasUnavailableError, ReplicasUnavailableError, foreign)
        self._redis = RedisClient(self._address, _CONNECTIONS, seconds, failures)

    async def poll(self) -> Revision:
        revision, last = await self._redis.execute(
            [["HGET", self._record, "revision"], ["ZRANGE", self._items, -1, -1, "WITHSCORES"]]
        )
        try:
            return Revision(int(revision or 0), int(float(last[-1])) if last else 0)
        except (ValueError, OverflowError):
            raise self._redis.damaged() from None

    async def read(self) -> bytes:
        (record,) = await self._redis.execute([["HGET", self._record, "record"]])
        return record or b""

    async def swap(self, before: bytes, after: bytes) -> bytes:
        record: bytes = await self._redis.run(SWAP, [self._record], [before, after])
        return record

    async def members(
        self, name: str = "", report: bytes = b"", forget_after: float = 0
    ) -> tuple[Member, ...]:
        values: Command = [name, report, round(forget_after * 1000)]
        reply = await self._redis.run(MEMBERS, [self._reports], values, is_write=False)
        return tuple(
            # A report from the future counts as old by the same time, so that nobody waits for its member.
            Member(member.decode("utf-8", "replace"), abs(age) / 1000, said)
            for member, age, said in zip(reply[::3], reply[1::3], reply[2::3], strict=True)
        )

    async def leave(self, name: str) -> None:
        await self._redis.execute([["HDEL", self._reports, name]])

    async def announce(self, items: int) -> None:
        """Nothing: `poll` reads the number of the items, which are in the same Redis."""

    async def take_lease(self, holder: str, seconds: float) -> bool:
        values: Command = [holder, round(seconds * 1000)]
        return bool(await self._redis.run(LEASE, [self._lease], values, is_write=False))

    async def close(self) -> None:
        await self._redis.close()


# KEYS: the values by id, the ids by number. ARGV: for each change the id, its value, and the number of the
# change before it ('' for any). Returns the number of each change, 0 if another change came before.
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

    The durability of items is that of histories in a Redis (docs/histories.md).
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
        changes: list[Change | None] = []
        for first in range(0, len(items), _AT_ONCE):
            part, (values, order) = items[first : first + _AT_ONCE], self._keys
            # A value may be newer than its number; a new change with `after` this number is refused then.
            pairs = [[["ZSCORE", order, item], ["HGET", values, item]] for item in part]
            flat = await self._redis.execute([command for pair in pairs for command in pair])
            changes += [
                _read(item.encode(), int(float(number)), value or b"") if number else None
                for item, number, value in zip(part, flat[::2], flat[1::2], strict=True)
            ]
        return changes

    async def changes(self, since: int, limit: int = CHANGES_PAGE) -> Changes:
        last, *rest = await self._redis.run(SINCE, self._keys, [since, limit], is_write=False)
        page = [_read(*rest[first : first + 3]) for first in range(0, len(rest), 3)]
        return Changes(page[-1].number if len(page) == limit else last, page)

    async def close(self) -> None:
        await self._redis.close()


def _written(change: NewChange) -> tuple[str, bytes, int | str]:
    value = b"%d" % change.time
    if change.fields is not None:
        value = b"%d\n%s\n%s" % (change.time, change.features or b"", change.fields)
    return change.item, value, "" if change.after is None else change.after


def _read(item: bytes, number: int, value: bytes) -> Change:
    """Parse a value; a foreign value gets features that are no JSON, which readers ignore."""
    try:
        time, *parts = value.split(b"\n")
        features, fields = parts or (None, None)
        return Change(item.decode(), number, int(time), features or None, fields)
    except ValueError:
        return Change(item.decode("utf-8", "backslashreplace"), number, 0, value or b"?", b"")
