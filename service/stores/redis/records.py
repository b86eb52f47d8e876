"""The common record of a service's members in a Redis, and the list of live members."""

from turret.service.errors import ReplicasUnavailableError
from turret.service.stores.contract import Member, Revision
from turret.service.stores.redis.client import Command, Failures, RedisClient, read_address

_CONNECTIONS = 4

# KEYS: the record. ARGV: the expected record ('' for none), the new one. Returns the record afterwards. Its
# revision is a time in microseconds, so that a record that was lost and is written again has another one.
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
# report, the milliseconds after which a silent one is forgotten. Returns for each member the name, its age in
# milliseconds and the report.
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

# KEYS: the lease. ARGV: its holder, the milliseconds that it lasts, 0 to return it. Returns 0 if it is taken.
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
            # A report that is dated in the future is as old as it is early: nobody waits for it.
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
