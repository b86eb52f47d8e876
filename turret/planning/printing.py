"""A plan as tables for a terminal."""

from rich.console import Console
from rich.table import Table

from turret.planning.amounts import Amount, byte_text, count_text, time_text
from turret.planning.limits import Limit
from turret.planning.parts import Part
from turret.planning.plan import Plan

WIDTH = 110


def print_plan(plan: Plan) -> None:
    """Print the parts, the limits of one machine, the commands and the assumptions."""
    console = Console(width=WIDTH, markup=False, highlight=False)
    request = plan.request
    console.print(
        f"{request.users:,.0f} users, {request.items:,.0f} items, {request.events:,.0f} events, "
        f"{request.requests:,.0f} requests/s; {request.experiment}, dimension {request.dimension}, "
        f"history {request.history}"
    )
    console.print(_parts_table(plan.parts))
    for part in plan.parts:
        for note in part.notes:
            console.print(f"{part.name}: {note}")
    for part in plan.parts:
        if part.beyond:
            sizes = " and ".join(_measured(name, most) for name, most in part.beyond.items())
            console.print(f"{part.name}: measured up to {sizes}; beyond that computed")
    for warning in plan.warnings:
        console.print(f"Does not fit: {warning}")
    machine = request.machine
    cores = f"{machine.cores} core{'s' * (machine.cores > 1)}"
    console.print(
        f"\nA machine of {cores}, {byte_text(machine.memory)} of memory and {byte_text(machine.disk)} of "
        "disk, with the other sizes as given:"
    )
    console.print(_limits_table(plan.limits))
    console.print("\nCommands:")
    for command in plan.commands:
        print(f"  {command}")
    console.print("\nAssumptions:")
    for assumption in plan.assumptions:
        console.print(f"- {assumption}")


def _measured(name: str, most: float) -> str:
    return f"{name} {most:,.0f}" if name in ("dimension", "history") else f"{most:,.0f} {name}"


def _parts_table(parts: tuple[Part, ...]) -> Table:
    table = Table()
    for heading in ("part", "memory", "for a while", "disk", "for a while", "time", "machines"):
        table.add_column(heading, justify="left" if heading == "part" else "right")
    for part in parts:
        cells = [
            _bytes(amount) for amount in (part.memory, part.passing_memory, part.disk, part.passing_disk)
        ]
        seconds = time_text(part.seconds.value) if part.seconds else ""
        table.add_row(part.name, *cells, seconds, f"{part.machines:,}")
    return table


def _bytes(amount: Amount | None) -> str:
    return byte_text(amount.value) if amount else ""


def _limits_table(limits: tuple[Limit, ...]) -> Table:
    table = Table()
    for heading in ("up to", "then", "turn to"):
        table.add_column(heading)
    for limit in limits:
        most = "any number of" if limit.most is None else count_text(limit.most)
        mark = " (exceeded)" if limit.is_exceeded else ""
        table.add_row(f"{most} {_NOUNS[limit.size]}{mark}", limit.reason, limit.remedy)
    return table


_NOUNS = {"events": "events", "items": "items", "requests": "requests/s"}
