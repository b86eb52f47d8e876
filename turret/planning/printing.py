"""A plan as tables for a terminal."""

from turret.data.text import duration, rounded_count, size, text_table
from turret.planning.figures import Amount
from turret.planning.parts import Part
from turret.planning.plan import Limit, Plan

_NOUNS = {"users": "users", "events": "events", "items": "items", "requests": "requests/s"}


def plan_text(plan: Plan) -> str:
    """The parts, the limits of one machine, the commands and the assumptions."""
    request, machine = plan.request, plan.request.machine
    cores = f"{machine.cores} core{'s' * (machine.cores > 1)}"
    headings = ("part", "memory", "for a while", "disk", "for a while", "time", "machines")
    lines = [
        f"{request.users:,.0f} users, {request.items:,.0f} items, {request.events:,.0f} events, "
        f"{request.requests:,.0f} requests/s; {request.experiment}, dimension {request.dimension}, "
        f"history {request.history}",
        text_table(headings, map(_part_row, plan.parts)),
        *(f"{part.name}: {note}" for part in plan.parts for note in part.notes),
        *(
            f"{part.name}: measured up to {_sizes(part.beyond)}; beyond that computed"
            for part in plan.parts
            if part.beyond
        ),
        *(f"Does not fit: {warning}" for warning in plan.warnings),
        f"\nA machine of {cores}, {size(machine.memory)} of memory and {size(machine.disk)} of disk, with "
        "the other sizes as given:",
        text_table(("up to", "then", "turn to"), map(_limit_row, plan.limits), right=False),
        "\nCommands:",
        *(f"  {command}" for command in plan.commands),
        "\nAssumptions:",
        *(f"- {assumption}" for assumption in plan.assumptions),
    ]
    return "\n".join(lines)


def _part_row(part: Part) -> list[str]:
    sizes = (part.memory, part.passing_memory, part.disk, part.passing_disk)
    seconds = duration(part.seconds.value) if part.seconds else ""
    return [part.name, *map(_size, sizes), seconds, f"{part.machines:,}"]


def _size(amount: Amount | None) -> str:
    return size(amount.value) if amount else ""


def _sizes(beyond: dict[str, float]) -> str:
    return " and ".join(
        f"{name} {most:,.0f}" if name in ("dimension", "history") else f"{most:,.0f} {name}"
        for name, most in beyond.items()
    )


def _limit_row(limit: Limit) -> list[str]:
    most = "any number of" if limit.most is None else rounded_count(limit.most)
    mark = " (exceeded)" if limit.is_exceeded else ""
    return [f"{most} {_NOUNS[limit.size]}{mark}", limit.reason, limit.remedy]
