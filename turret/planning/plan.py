"""A whole plan: its parts, where one machine ends, the commands, and all of it as text."""

from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from typing import Literal

from turret.data.text import duration, rounded_count, size, text_table
from turret.planning.figures import Amount, Figures, least_of
from turret.planning.parts import BUSY, Machine, Part, Planner, PlanRequest, experiment_defaults

_LARGEST = 1e13  # no shop has a larger size
_HALVINGS = 60  # of the logarithm of a size, to less than a millionth
_TORCHRUN = "torchrun --nproc-per-node N -m -- turret train"
_SPARK, _MILVUS = "--engine spark://HOST:7077", "--engine milvus://HOST:19530"
_ENGINES = (_TORCHRUN, _SPARK, _MILVUS)
# Beyond so many items a shipped full softmax is slow, as docs/training.md says.
_SAMPLED_FROM = 100_000
_NOUNS = {"users": "users", "events": "events", "items": "items", "requests": "requests/s"}
Size = Literal["users", "events", "items", "requests"]


@dataclass(frozen=True)
class Limit:
    """One machine holds `size` up to `most`, the others as given; None if no size exceeds it.

    `remedy` names the alternatives beyond, `engine` the one that the commands then use.
    """

    size: Size
    most: float | None
    is_exceeded: bool
    reason: str
    remedy: str
    engine: str | None = None


def limits(request: PlanRequest, figures: Figures) -> list[Limit]:
    """Where one machine ends, in the order of the parts."""
    machine = request.machine
    # A size, the amount that it needs, the amount that one machine has, the reason of the limit, the remedy.
    rows: list[tuple[Size, Callable[[Planner], float], float, str, str]] = [
        (
            "users",
            lambda one: one.preparation().most_memory,
            machine.memory,
            "the ids fill the memory of the preparation",
            "more memory, or fewer users: those of a newer part of the log",
        ),
        (
            "events",
            lambda one: one.preparation().most_disk,
            machine.disk,
            "preparing them fills the disk",
            f"a larger disk, or Spark: `turret data prepare {_SPARK}`",
        ),
        (
            "items",
            lambda one: max(one.training().most_memory, one.index().most_memory),
            machine.memory,
            "training or export fills the memory",
            "more memory, or a smaller dimension",
        ),
        (
            "events",
            lambda one: (one.training().seconds or Amount(0)).value,
            3600 * request.hours,
            f"training takes {request.hours:g} hours",
            f"warm starts (`turret retrain`), fewer epochs, a GPU, or several processes: `{_TORCHRUN}`",
        ),
        (
            "items",
            lambda one: one.activation_memory(machine.cores).value,
            machine.memory,
            "an activation fills the memory of the service",
            "more memory, a smaller dimension, or a vector engine: "
            f"`turret publish {_MILVUS}` or `redis://HOST:6379`",
        ),
        (
            "requests",
            lambda one: one.machines,
            1,
            f"all cores are busy for {100 * BUSY:.0f} % of the time",
            "replicas of the service behind a proxy, with the histories in a Redis",
        ),
    ]
    if Planner(request, figures).machines > 1:
        rows.append(
            (
                "events",
                lambda one: figures.at("histories.redis.memory", one.request.sizes()).value,
                machine.memory,
                "the histories fill the memory of one Redis",
                "a Redis Cluster; SQLite, on one machine, holds them on its disk",
            )
        )
    found = []
    for name, needed, available, reason, remedy in rows:
        most = _largest_size(request, figures, name, needed, available)
        is_exceeded = most is not None and getattr(request, name) > most
        engine = next((one for one in _ENGINES if one in remedy), None)
        found.append(Limit(name, most, is_exceeded, reason, remedy, engine))
    return found


def _largest_size(
    request: PlanRequest,
    figures: Figures,
    size: Size,
    needed: Callable[[Planner], float],
    available: float,
) -> float | None:
    """The largest value of one size that fits, the others as given; None if all fit, 0 if none does.

    `needed` must not fall for larger values.
    """

    def fits_at(value: float) -> bool:
        """With more events, users have more each; there are at least as many events as users."""
        changed = replace(request, **{size: value})  # type: ignore[arg-type]  # all sizes are floats
        if size == "users":
            changed = replace(changed, events=max(request.events, value))
        else:
            changed = replace(changed, users=min(request.users, changed.events))
        return needed(Planner(changed, figures)) <= available

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
        _commands(planner, {one.engine for one in found if one.is_exceeded}),
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


def _commands(planner: Planner, engines: Set[str | None]) -> tuple[str, ...]:
    """Shell commands from the log to the service; `engines` are those that the sizes need."""
    store = "sqlite:///var/history.sqlite"
    if planner.store == "redis":
        store = "redis://HOST:6379/0" if planner.redis_machines == 1 else "redis+cluster://HOST:6379"
    index = "index var/bundles/first --kind auto"
    if _MILVUS in engines:
        index = f"publish var/bundles/first {_MILVUS}"
    return (
        "turret data prepare LOG --to var/prepared" + f" {_SPARK}" * (_SPARK in engines),
        _train_command(planner.request, _TORCHRUN if _TORCHRUN in engines else "turret train"),
        "turret export var/run --bundles var/bundles --version first",
        f"turret {index} --version first-indexed",
        "turret activate first-indexed --bundles var/bundles",
        f"turret history load --data var/prepared --store {store}",
        f"turret serve --bundles var/bundles --workers {planner.workers} --store {store}",
    )


def _train_command(request: PlanRequest, command: str) -> str:
    defaults = experiment_defaults(request.experiment)
    given = {"dimension": request.dimension, "history": request.history, "epochs": request.epochs}
    settings = {
        "dimension": "tower.dimension",
        "history": "tower.user.history_length",
        "epochs": "training.epochs",
    }
    words = [f"{command} --data var/prepared --run var/run --experiment {request.experiment}"]
    words += [f"--set {settings[name]}={value}" for name, value in given.items() if value != defaults[name]]
    if request.experiment == "transformer" and request.items > _SAMPLED_FROM:
        words.append(
            """--set 'objective={loss="sampled_softmax", sampler={kind="uniform", negatives=1024}}'"""
        )
    return " ".join(words)


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
