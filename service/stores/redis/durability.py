"""Warnings of a Redis's settings that lose acknowledged events."""

from collections.abc import Sequence

from turret.service.stores.redis.client import Command

# What to ask a server; either reply may be an error reply.
QUESTIONS: Sequence[Command] = (["INFO"], ["CONFIG", "GET", "appendfsync"])
_NO_EVICTION = "noeviction"


def durability_warnings(server: str, replies: Sequence[object]) -> list[str]:
    """Judge the replies of a server to QUESTIONS."""
    info = _info(replies[0])
    if "redis_version" not in info:
        return [
            f"{server} doesn't tell whether it keeps histories over a restart (INFO is not allowed); make "
            "sure that it has appendonly yes and maxmemory-policy noeviction"
        ]
    warnings = []
    if info.get("role") == "slave":
        warnings.append(f"{server} is a replica, which can't store events; name its primary")
    elif info.get("aof_enabled") != "1":
        warnings.append(
            f"{server} has no append-only file, so acknowledged events are lost when it stops; set "
            "appendonly yes (and appendfsync always, unless a power failure may lose the last second)"
        )
    elif replies[1] == [b"appendfsync", b"no"]:
        warnings.append(
            f"{server} leaves syncing to the system (appendfsync no), so a power failure loses about half a "
            "minute of acknowledged events; set appendfsync everysec or always"
        )
    policy = info.get("maxmemory_policy", _NO_EVICTION)
    if policy != _NO_EVICTION and info.get("maxmemory", "0") != "0":
        warnings.append(
            f"{server} evicts keys when its memory is full (maxmemory-policy {policy}), histories too; set "
            "maxmemory-policy noeviction, which refuses new events instead"
        )
    return warnings


def replica_warnings(server: str, replicas: int, replies: Sequence[object]) -> list[str]:
    """Judge the same replies of a master of a cluster, where `replicas` have to confirm a write."""
    info = _info(replies[0])
    online = sum(value.count("state=online") for name, value in info.items() if name.startswith("slave"))
    if online < replicas:
        return [
            f"{server} has fewer than {replicas} replicas online, so it refuses events; start its replicas, "
            "or lower replicas in the address"
        ]
    if not replicas and online:
        return [
            f"{server} acknowledges events before its replicas have them, so a failover loses some; add "
            "?replicas=1 to the address"
        ]
    return []


def _info(reply: object) -> dict[str, str]:
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else ""
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
