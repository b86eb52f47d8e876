"""A whole plan: parts, limits, warnings, assumptions and commands."""

from dataclasses import dataclass
from typing import Any

from turret.planning.amounts import byte_text
from turret.planning.figures import Figures
from turret.planning.histories import plan_backup, plan_histories
from turret.planning.index import plan_index, plan_versions
from turret.planning.limits import Limit, limits
from turret.planning.parts import Part
from turret.planning.preparation import plan_preparation
from turret.planning.request import PlanRequest
from turret.planning.service import BUSY, plan_service
from turret.planning.steps import commands
from turret.planning.training import plan_training


@dataclass(frozen=True)
class Plan:
    """The parts in the order in which they run; `warnings` name the parts that one machine does not hold.

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
        request = self.request
        return {
            "sizes": {name: getattr(request, name) for name in ("users", "items", "events", "requests")},
            "settings": {
                name: getattr(request, name)
                for name in ("experiment", "dimension", "history", "epochs", "hours")
            },
            "machine": vars(request.machine),
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
    parts = (
        plan_preparation(request, figures),
        plan_training(request, figures),
        plan_index(request, figures),
        plan_service(request, figures),
        plan_histories(request, figures),
        plan_versions(request, figures),
        plan_backup(request, figures),
    )
    found = limits(request, figures)
    beyond: dict[str, float] = {}
    for part in parts:
        beyond |= {name: min(most, beyond.get(name, most)) for name, most in part.beyond.items()}
    return Plan(
        request,
        parts,
        tuple(found),
        tuple(warnings(request, parts)),
        beyond,
        tuple(assumptions(figures)),
        tuple(commands(request, figures, {one.engine for one in found if one.is_exceeded})),
    )


def warnings(request: PlanRequest, parts: tuple[Part, ...]) -> list[str]:
    """A sentence for each part that needs more memory or disk than a machine has, and for all disks."""
    machine = request.machine
    found = [
        _short_of_memory(part, machine.memory)
        for part in parts
        if part.most_memory > machine.memory * (part.machines if part.is_split else 1)
    ]
    disk = sum(part.most_disk for part in parts if part.machines == 1)
    if disk > machine.disk:
        found.append(
            f"all parts need {byte_text(disk)} of disk, and the machine has {byte_text(machine.disk)}"
        )
    return found


def _short_of_memory(part: Part, memory: float) -> str:
    needed = f"{part.name} needs {byte_text(part.most_memory)} of memory"
    if part.machines == 1:
        return f"{needed}, and the machine has {byte_text(memory)}"
    if part.is_split:
        return f"{needed}, and its {part.machines:,} machines have {byte_text(memory * part.machines)}"
    return f"{needed} on each of its {part.machines:,} machines, and a machine has {byte_text(memory)}"


def assumptions(figures: Figures) -> list[str]:
    """The conditions of the plan."""
    return [
        f"measured on {figures.source_line()}; times are those of one of its cores",
        f"a core of the service is planned to be busy for {100 * BUSY:.0f} % of the time; further cores and "
        "machines to answer as many requests as the first",
        "a request names a user with stored events and asks for 10 items; ids have up to 10 characters",
        "prepared data and bundles hold a title, genres and a price of each item, and no features of users",
        "sizes are those of the peak; leave memory for the system and for growth",
    ]
