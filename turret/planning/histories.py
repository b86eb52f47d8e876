"""The plan of the stored histories: SQLite for one machine, a Redis for several, and their backup."""

from math import ceil

from turret.planning.figures import Figures
from turret.planning.index import BUNDLES, bundle_disk
from turret.planning.parts import Part
from turret.planning.request import PlanRequest
from turret.planning.service import BUSY, capacity


def plan_histories(request: PlanRequest, figures: Figures) -> Part:
    """Disk and the time to load the log; with a Redis also its memory, and its machines."""
    sizes = request.sizes()
    if capacity(request, figures).machines == 1:
        return Part(
            "histories in SQLite",
            disk=figures.at("histories.sqlite.disk", sizes),
            seconds=figures.at("histories.sqlite.load_seconds", sizes),
        )
    memory = figures.at("histories.redis.memory", sizes)
    machines = redis_machines(request, figures)
    return Part(
        "histories in a Redis" if machines == 1 else "histories in a Redis Cluster",
        memory=memory,
        disk=figures.at("histories.redis.disk", sizes),
        seconds=figures.at("histories.redis.load_seconds", sizes),
        machines=machines,
        is_split=True,
        notes=("memory and disk of all machines together, without replicas of the Redis",),
    )


def redis_machines(request: PlanRequest, figures: Figures) -> int:
    """One Redis as long as its machine holds the histories and a core answers; else masters of a cluster.

    A cluster has three masters at least.
    """
    memory = figures.at("histories.redis.memory", request.sizes()).value
    core = BUSY / figures.quantities["service.redis.read_seconds"].base
    needed = ceil(max(memory / request.machine.memory, request.requests / core))
    return 1 if needed <= 1 else max(3, needed)


def plan_backup(request: PlanRequest, figures: Figures) -> Part:
    """One backup: a copy of the stored histories and of all bundles, as `deploy/backup` makes it."""
    store = "sqlite" if capacity(request, figures).machines == 1 else "redis"
    stored = figures.at(f"histories.{store}.disk", request.sizes())
    return Part("one backup", disk=stored + bundle_disk(request, figures) * BUNDLES)
