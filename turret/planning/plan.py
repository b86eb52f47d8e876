"""A whole plan: its parts, where one machine ends, and the commands."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from turret.data.text import size
from turret.planning.figures import Amount, Figures, least_of
from turret.planning.parts import BUSY, TORCHRUN, Machine, Part, Planner, PlanRequest

_LARGEST = 1e13  # no shop has a larger size
_HALVINGS = 60  # of the logarithm of a size, to less than a millionth
_ENGINES = ("spark", "torchrun", "retrieval")
_REMEDIES = {
    "memory": "more memory, or fewer users: those of a newer part of the log",
    "dimension": "more memory, or a smaller dimension",
    "spark": "a larger disk, or Spark: `turret data prepare --engine spark://HOST:7077`",
    "torchrun": f"warm starts (`turret retrain`), fewer epochs, a GPU, or several processes: `{TORCHRUN}`",
    "retrieval": "more memory, a smaller dimension, or a vector engine: "
    "`turret publish --engine milvus://HOST:19530` or `redis://HOST:6379`",
    "replicas": "replicas of the service behind a proxy, with the histories in a Redis",
    "cluster": "a Redis Cluster; SQLite, on one machine, holds them on its disk",
}
Size = Literal["users", "events", "items", "requests"]


@dataclass(frozen=True)
class Limit:
    """One machine holds `size` up to `most`, the others as given; None if no size exceeds it.

    `remedy` names the alternatives beyond, `engine` the one that the commands then use.
    """

    size: Size
    most: float | None
    given: float
    reason: str
    remedy: str
    engine: str | None = None

    @property
    def is_exceeded(self) -> bool:
        """Whether one machine does not hold the size that is planned for."""
        return self.most is not None and self.given > self.most


def limits(request: PlanRequest, figures: Figures) -> list[Limit]:
    """Where one machine ends, in the order of the parts."""
    machine = request.machine
    rows: list[tuple[Size, Callable[[Planner], bool], str, str]] = [
        (
            "users",
            lambda one: one.preparation().most_memory <= machine.memory,
            "the ids fill the memory of the preparation",
            "memory",
        ),
        (
            "events",
            lambda one: one.preparation().most_disk <= machine.disk,
            "preparing them fills the disk",
            "spark",
        ),
        (
            "items",
            lambda one: max(one.training().most_memory, one.index().most_memory) <= machine.memory,
            "training or export fills the memory",
            "dimension",
        ),
        (
            "events",
            lambda one: (one.training().seconds or Amount(0)).value <= 3600 * request.hours,
            f"training takes {request.hours:g} hours",
            "torchrun",
        ),
        (
            "items",
            lambda one: one.activation_memory(machine.cores).value <= machine.memory,
            "an activation fills the memory of the service",
            "retrieval",
        ),
        (
            "requests",
            lambda one: one.machines == 1,
            f"all cores are busy for {100 * BUSY:.0f} % of the time",
            "replicas",
        ),
    ]
    if Planner(request, figures).machines > 1:
        rows.append(
            (
                "events",
                lambda one: figures.at("histories.redis.memory", one.request.sizes()).value <= machine.memory,
                "the histories fill the memory of one Redis",
                "cluster",
            )
        )
    return [
        Limit(
            size,
            _largest_size(request, size, lambda one, fits=fits: fits(Planner(one, figures))),  # type: ignore[misc]
            getattr(request, size),
            reason,
            _REMEDIES[remedy],
            remedy if remedy in _ENGINES else None,
        )
        for size, fits, reason, remedy in rows
    ]


def _largest_size(request: PlanRequest, size: Size, fits: Callable[[PlanRequest], bool]) -> float | None:
    """The largest value of one size that fits, the others as given; None if all fit, 0 if none does.

    `fits` must not turn true again for larger values.
    """

    def fits_at(value: float) -> bool:
        """With more events, users have more each; there are at least as many events as users."""
        changed = replace(request, **{size: value})  # type: ignore[arg-type]  # all sizes are floats
        if size == "users":
            return fits(replace(changed, events=max(request.events, value)))
        return fits(replace(changed, users=min(request.users, changed.events)))

    low, high = 1.0, _LARGEST
    if fits_at(high):
        return None
    if not fits_at(low):
        return 0.0
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if fits_at(middle) else (low, middle)
    return low


@dataclass(frozen=True)
class Plan:
    """`warnings` name the parts that a machine does not hold.

    `beyond` has the largest measured value of each size that the plan exceeds.
    """

    request: PlanRequest
    parts: tuple[Part, ...]
    limits: tuple[Limit, ...]
    warnings: tuple[str, ...]
    beyond: dict[str, float]
    assumptions: tuple[str, ...]
    commands: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The plan for programs: bytes and seconds."""
        given = {field.name: getattr(self.request, field.name) for field in fields(self.request)}
        sizes = ("users", "items", "events", "requests")
        machine = vars(given.pop("machine"))
        return {
            "sizes": {name: given.pop(name) for name in sizes},
            "settings": given,
            "machine": machine,
            "parts": {part.name: _part_json(part) for part in self.parts},
            "limits": [{**vars(one), "is_exceeded": one.is_exceeded} for one in self.limits],
            "warnings": self.warnings,
            "measured_up_to": self.beyond,
            "assumptions": self.assumptions,
            "commands": self.commands,
        }


def _part_json(part: Part) -> dict[str, Any]:
    amounts = {
        "memory_bytes": part.memory,
        "passing_memory_bytes": part.passing_memory,
        "disk_bytes": part.disk,
        "passing_disk_bytes": part.passing_disk,
        "seconds": part.seconds,
    }
    shown = {name: amount.value for name, amount in amounts.items() if amount is not None}
    return {**shown, "machines": part.machines, "measured_up_to": part.beyond, "notes": part.notes}


def make_plan(request: PlanRequest, figures: Figures) -> Plan:
    """Compute a plan. Raises ConfigurationError for a request that can't be planned."""
    request.check(figures.experiments)
    planner = Planner(request, figures)
    parts, found = planner.parts(), limits(request, figures)
    return Plan(
        request,
        parts,
        tuple(found),
        tuple(_warnings(request.machine, parts)),
        least_of(*(part.beyond for part in parts)),
        (
            f"measured on {figures.source_line()}; times are those of one of its cores",
            f"a core of the service is planned to be busy for {100 * BUSY:.0f} % of the time; further cores "
            "and machines to answer as many requests as the first",
            "a request names a user with stored events and asks for 10 items; ids have up to 10 characters",
            "prepared data and bundles hold a title, genres and a price of each item, no features of users",
            "sizes are those of the peak; leave memory for the system and for growth",
        ),
        planner.commands({one.engine for one in found if one.is_exceeded}),
    )


def _warnings(machine: Machine, parts: tuple[Part, ...]) -> list[str]:
    """A sentence for each part that needs more memory or disk than a machine has, and for all disks."""
    found = [
        f"{part.name} needs {size(part.most_memory)} of memory"
        + (f" on each of its {part.machines:,} machines" if part.machines > 1 else "")
        + f", and {'a' if part.machines > 1 else 'the'} machine has {size(machine.memory)}"
        for part in parts
        if part.most_memory > machine.memory
    ]
    disk = sum(part.most_disk for part in parts if part.machines == 1)
    if disk > machine.disk:
        found.append(f"all parts need {size(disk)} of disk, and the machine has {size(machine.disk)}")
    return found
