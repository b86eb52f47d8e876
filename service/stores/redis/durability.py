"""Which settings of a Redis lose acknowledged events."""

from collections.abc import Sequence

COMMANDS = (("INFO",), ("CONFIG", "GET", "appendfsync"))
_NO_EVICTION = "noeviction"


def durability_warnings(address: str, replies: Sequence[object]) -> list[str]:
    """Judge the replies to INFO and CONFIG GET appendfsync, either of which may be an error reply."""
    info = _info(replies[0])
    if "redis_version" not in info:
        return [
            f"{address} doesn't tell whether it keeps histories over a restart (INFO is not allowed); make "
            "sure that it has appendonly yes and maxmemory-policy noeviction"
        ]
    warnings = []
    if info.get("role") == "slave":
        warnings.append(f"{address} is a replica, which can't store events; name its primary")
    elif info.get("aof_enabled") != "1":
        warnings.append(
            f"{address} has no append-only file, so acknowledged events are lost when it stops; set "
            "appendonly yes (and appendfsync always, unless a power failure may lose the last second)"
        )
    elif _fsync(replies[1]) == "no":
        warnings.append(
            f"{address} leaves syncing to the system (appendfsync no), so a power failure loses about half a "
            "minute of acknowledged events; set appendfsync everysec or always"
        )
    policy = info.get("maxmemory_policy", _NO_EVICTION)
    if policy != _NO_EVICTION and info.get("maxmemory", "0") != "0":
        warnings.append(
            f"{address} evicts keys when its memory is full (maxmemory-policy {policy}), histories too; set "
            "maxmemory-policy noeviction, which refuses new events instead"
        )
    return warnings


def _info(reply: object) -> dict[str, str]:
    return dict(line.split(":", 1) for line in _text(reply).splitlines() if ":" in line)


def _fsync(reply: object) -> str:
    return _text(reply[1]) if isinstance(reply, list) and len(reply) == 2 else ""


def _text(reply: object) -> str:
    return reply.decode("utf-8", "replace") if isinstance(reply, bytes) else ""


def replica_warnings(address: str, replicas: int, reply: object) -> list[str]:
    """Judge a master of a cluster by its reply to INFO, where `replicas` have to confirm a write."""
    info = _info(reply)
    online = sum(value.count("state=online") for name, value in info.items() if name.startswith("slave"))
    if online < replicas:
        return [
            f"{address} has fewer than {replicas} replicas online, so it refuses events; start its replicas, "
            "or lower replicas in the address"
        ]
    if not replicas and online:
        return [
            f"{address} acknowledges events before its replicas have them, so a failover loses some; add "
            "?replicas=1 to the address"
        ]
    return []
