"""The common record of a service's members in a Redis, and the list of live members."""

from typing import Any

from turret.service.errors import ReplicasUnavailableError
from turret.service.stores.contract import Member, Revision
from turret.service.stores.redis.address import KeyNames, read_address
from turret.service.stores.redis.client import Command, Failures, RedisClient

_CONNECTIONS = 4

# KEYS: the record. ARGV: the expected record ('' for none), the new one. Returns the record afterwards. Its
# revision is a time in microseconds, so that a record that was lost and is written again has another one.
SWAP = """
local record = redis.call('HGET', KEYS[1], 'record') or ''
if record ~= ARGV[1] then
  return record
end
local time = redis.call('TIME')
local revision = time[1] * 1000000 + time[2]
local last = tonumber(redis.call('HGET', KEYS[1], 'revision') or '0') or 0
if last >= revision and last < 9007199254740991 then -- the clock was set back
  revision = last + 1
end
redis.call('HSET', KEYS[1], 'record', ARGV[2], 'revision', string.format('%.0f', revision))
return ARGV[2]
"""

# KEYS: the reports by member, the time of each in milliseconds. ARGV: the member ('' writes nothing), its
# report, the milliseconds after which a silent one is forgotten. Returns for each member the name, its age in
# milliseconds and the report.
MEMBERS = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[1] ~= '' then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  redis.call('ZADD', KEYS[2], now, ARGV[1])
  for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', '(' .. now - ARGV[3])) do
    redis.call('HDEL', KEYS[1], gone)
    redis.call('ZREM', KEYS[2], gone)
  end
end
local result = {}
local members = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
for index = 1, #members, 2 do
  result[#result + 1] = members[index]
  result[#result + 1] = now - tonumber(members[index + 1])
  result[#result + 1] = redis.call('HGET', KEYS[1], members[index]) or ''
end
return result
"""

# KEYS: the lease. ARGV: its holder, the milliseconds that it lasts (0 returns it), 1 to take a free one.
# Returns 1 if it is, or was, held.
LEASE = """
local holder = redis.call('GET', KEYS[1])
if not holder or redis.call('PTTL', KEYS[1]) == -1 then -- one without an end is damage, and nobody's
  holder = ARGV[3] == '1' and ARGV[1]
end
if holder ~= ARGV[1] then
  return 0
end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], holder, 'PX', ARGV[2])
end
return 1
"""


class RedisRecords:
    """A RecordStore in a Redis, under the prefix of its address and the name of the group.

    The record and its revision are fields of one key, so that neither is lost without the other.
    """

    def __init__(self, address: str, group: str, seconds: float) -> None:
        self._address = read_address(address)
        names = KeyNames(self._address.prefix, bool(self._address.nodes))
        parts = ("record", "reports", "times", "lease")
        keys = [names.shared(f"replicas:{group}:{part}") for part in parts]
        self._record, self._reports, self._times, self._lease = keys
        self._items = names.shared("items:number")
        foreign = f"of another service (one of {', '.join(keys)})"
        failures = Failures(ReplicasUnavailableError, ReplicasUnavailableError, foreign)
        self._redis = RedisClient(self._address, _CONNECTIONS, seconds, failures)

    async def poll(self) -> Revision:
        """Return the numbers by which changes are noticed; see RecordStore."""
        replies = await self._redis.execute([["HGET", self._record, "revision"], ["GET", self._items]])
        self._redis.raise_for_errors(replies[:1])  # the items' own store says what is wrong with theirs
        record, items = map(_number, replies)
        if record < 0:
            raise ReplicasUnavailableError(
                f"{self._address} has a key {self._record} whose revision is no number; delete the key, and "
                "the service writes it again"
            )
        return Revision(record, items)

    async def read(self) -> bytes:
        """Return the record; see RecordStore."""
        replies = await self._redis.execute([["HGET", self._record, "record"]])
        self._redis.raise_for_errors(replies)
        return replies[0] or b""

    async def swap(self, before: bytes, after: bytes) -> bytes:
        """Replace the record if it is `before`; see RecordStore."""
        record: bytes = await self._redis.run(SWAP, [self._record], [before, after])
        return record

    async def members(
        self, name: str = "", report: bytes = b"", forget_after: float = 0
    ) -> tuple[Member, ...]:
        """Return the last report of each member; see RecordStore."""
        values: Command = [name, report, round(forget_after * 1000)]
        reply = await self._redis.run(MEMBERS, [self._reports, self._times], values, is_write=False)
        return tuple(
            # A report that is dated in the future is as old as it is early: nobody waits for it.
            Member(member.decode("utf-8", "replace"), abs(age) / 1000, said)
            for member, age, said in zip(reply[::3], reply[1::3], reply[2::3], strict=True)
        )

    async def leave(self, name: str) -> None:
        """Forget a member that ends; see RecordStore."""
        # A report without a time would never be forgotten, so the time is deleted first.
        commands = [["ZREM", self._times, name], ["HDEL", self._reports, name]]
        self._redis.raise_for_errors(await self._redis.execute(commands))

    async def announce(self, items: int) -> None:
        """Nothing: `poll` reads the number of the items, which are in the same Redis."""

    async def take_lease(self, holder: str, seconds: float) -> bool:
        """Take or prolong the lease; see RecordStore."""
        return await self._set_lease(holder, seconds, takes=True)

    async def prolong_lease(self, holder: str, seconds: float) -> bool:
        """Prolong the lease, or return it with 0; see RecordStore."""
        return await self._set_lease(holder, seconds, takes=False)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.close()

    async def _set_lease(self, holder: str, seconds: float, takes: bool) -> bool:
        values: Command = [holder, round(seconds * 1000), int(takes)]
        return bool(await self._redis.run(LEASE, [self._lease], values, is_write=False))


def _number(reply: Any) -> int:
    """Parse a number, 0 for a missing one and -1 for a damaged one."""
    try:
        return max(int(reply or 0), -1)
    except (TypeError, ValueError):
        return -1
