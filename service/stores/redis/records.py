"""The common record of a service's replicas in a Redis, and the list of live replicas."""

from typing import Any

from turret.service.errors import HistoryUnavailableError, ReplicasUnavailableError
from turret.service.stores.contract import Beat, RecordView
from turret.service.stores.redis.address import KeyNames, read_address
from turret.service.stores.redis.client import Command
from turret.service.stores.redis.cluster import connect

CONNECTIONS = 4

# KEYS: the record, the reports by replica, the time of each in milliseconds, the number of the items. ARGV:
# the replica ('' writes nothing), its report, the milliseconds after which a silent one is forgotten. Returns
# the record, the number of the items, then for each replica the name, its age in milliseconds and the report.
VIEW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[1] ~= '' then
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
  redis.call('ZADD', KEYS[3], now, ARGV[1])
  for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now - ARGV[3])) do
    redis.call('HDEL', KEYS[2], gone)
    redis.call('ZREM', KEYS[3], gone)
  end
end
local result = {redis.call('GET', KEYS[1]) or '', tonumber(redis.call('GET', KEYS[4]) or '0') or -1}
local beats = redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES')
for index = 1, #beats, 2 do
  result[#result + 1] = beats[index]
  result[#result + 1] = now - tonumber(beats[index + 1])
  result[#result + 1] = redis.call('HGET', KEYS[2], beats[index]) or ''
end
return result
"""

# KEYS: the record. ARGV: the expected record ('' for none), the new one. Returns the record afterwards.
SWAP = """
if (redis.call('GET', KEYS[1]) or '') == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2])
end
return redis.call('GET', KEYS[1]) or ''
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

# KEYS: the reports, the times. ARGV: the replica.
LEAVE = """
redis.call('HDEL', KEYS[1], ARGV[1])
return redis.call('ZREM', KEYS[2], ARGV[1])
"""


class RedisRecords:
    """A RecordStore in a Redis, under the prefix of its address and the name of the group."""

    def __init__(self, address: str, group: str, seconds: float) -> None:
        self._address = read_address(address)
        self._redis = connect(self._address, CONNECTIONS, seconds)
        names = KeyNames(self._address.prefix, bool(self._address.nodes))
        self._record, self._reports, self._times, self._lease = (
            names.shared(f"replicas:{group}:{part}") for part in ("live", "reports", "times", "lease")
        )
        self._items = names.shared("items:number")

    async def view(self, replica: str = "", report: bytes = b"", forget_after: float = 0) -> RecordView:
        """Read all, and report for a replica; see RecordStore."""
        keys = [self._record, self._reports, self._times, self._items]
        reply = await self._run(VIEW, keys, [replica, report, round(forget_after * 1000)])
        if not isinstance(reply, list) or len(reply) < 2 or not isinstance(reply[1], int):
            raise self._foreign()
        record, items, *rest = reply
        beats = [
            # A report that is dated in the future is as old as it is early: nobody waits for it.
            Beat(name.decode("utf-8", "replace"), abs(age) / 1000, said)
            for name, age, said in zip(rest[::3], rest[1::3], rest[2::3], strict=True)
        ]
        return RecordView(record, items, tuple(beats))

    async def swap(self, before: bytes, after: bytes) -> bytes:
        """Replace the record if it is `before`; see RecordStore."""
        record = await self._run(SWAP, [self._record], [before, after], is_write=True)
        if not isinstance(record, bytes):
            raise self._foreign()
        return record

    async def take_lease(self, holder: str, seconds: float) -> bool:
        """Take or prolong the lease; see RecordStore."""
        return await self._set_lease(holder, seconds, takes=True)

    async def prolong_lease(self, holder: str, seconds: float) -> bool:
        """Prolong the lease, or return it with 0; see RecordStore."""
        return await self._set_lease(holder, seconds, takes=False)

    async def _set_lease(self, holder: str, seconds: float, takes: bool) -> bool:
        values: Command = [holder, round(seconds * 1000), int(takes)]
        return bool(await self._run(LEASE, [self._lease], values) == 1)

    async def leave(self, replica: str) -> None:
        """Forget a replica that ends."""
        await self._run(LEAVE, [self._reports, self._times], [replica])

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.close()

    async def _run(self, script: str, keys: list[str], values: Command, is_write: bool = False) -> Any:
        try:
            return await self._redis.run(script, keys, values, is_write)
        except HistoryUnavailableError as error:
            foreign = f"of another service (one of {', '.join(keys)})"
            raise ReplicasUnavailableError(str(error).replace("that is no history", foreign)) from None

    def _foreign(self) -> ReplicasUnavailableError:
        return ReplicasUnavailableError(f"{self._address} sends replies that are not a Redis's")
