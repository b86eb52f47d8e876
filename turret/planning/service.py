"""The plan of `turret serve`: memory by catalog, and machines by requests/s."""

from dataclasses import dataclass
from math import ceil

from turret.planning.amounts import Amount
from turret.planning.figures import Figures
from turret.planning.index import bundle_disk
from turret.planning.parts import Part
from turret.planning.request import PlanRequest
from turret.tower.config import MEMORY_FACTOR

# The share of a core that is planned for: requests come in bursts. An assumption, not a measurement.
BUSY = 0.6


@dataclass(frozen=True)
class Capacity:
    """Requests/s that one core and one machine answer, and the machines that the peak needs."""

    core: Amount
    machine: float
    machines: int
    workers: int


def capacity(request: PlanRequest, figures: Figures) -> Capacity:
    """Machines for the requests at the peak, each core busy for `BUSY` of the time.

    A second machine needs a Redis for the histories, which costs the service more time than SQLite.
    """
    alone = _capacity(request, figures, "sqlite")
    return alone if alone.machines == 1 else _capacity(request, figures, "redis")


def _capacity(request: PlanRequest, figures: Figures, store: str) -> Capacity:
    seconds = figures.at(f"service.{store}.request_seconds", request.sizes())
    core = Amount(BUSY / seconds.value, seconds.beyond)
    cores = request.machine.cores
    machines = max(1, ceil(request.requests / (core.value * cores)))
    if store == "redis":
        machines = max(2, machines)
    workers = min(cores, max(1, ceil(request.requests / machines / core.value)))
    return Capacity(core, core.value * cores, machines, workers)


def plan_service(request: PlanRequest, figures: Figures) -> Part:
    """Memory of each machine at rest and during an activation, and the number of machines."""
    planned = capacity(request, figures)
    memory = service_memory(request, figures, planned.workers)
    proxy = figures.quantities["proxy.request_seconds"].base
    notes = [
        f"{planned.core.value:,.0f} requests/s of a core that is busy for {100 * BUSY:.0f} % of the time; "
        f"{planned.workers} worker{'s' * (planned.workers > 1)}"
        + (" on each machine" if planned.machines > 1 else "")
    ]
    if planned.machines > 1:
        cores = request.requests * proxy / BUSY
        notes.append(f"the proxy in front takes {cores:.1f} cores")
    return Part(
        "service",
        memory=memory,
        passing_memory=activation_memory(request, figures, planned.workers),
        machines=planned.machines,
        notes=tuple(notes),
    )


def service_memory(request: PlanRequest, figures: Figures, workers: int) -> Amount:
    """Resident bytes of one machine's service with its live version."""
    sizes = request.sizes()
    first, further = figures.at("service.memory", sizes), figures.at("service.worker_memory", sizes)
    return first + further * (workers - 1)


def activation_memory(request: PlanRequest, figures: Figures, workers: int) -> Amount:
    """Bytes while a version is activated: the gate refuses it without room for 1.5 times its files."""
    gate = bundle_disk(request, figures) * MEMORY_FACTOR
    return service_memory(request, figures, workers) + gate
