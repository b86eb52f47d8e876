"""`turret plan`: memory, disk, time and machines for a shop, from measured figures."""

import json
import os
import re
import shutil
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.resources import files
from math import ceil
from typing import Annotated, Any, Literal

import typer

from turret.data.errors import ConfigurationError
from turret.data.text import duration, rounded_count, size, text_table
from turret.tower.cli import AsJson
from turret.tower.config import MEMORY_FACTOR

EXPERIMENT = "youtubednn"
VALIDATION_USERS = 20_000  # the default of training.validation_users
# The share of a core that is planned for: requests come in bursts. An assumption, not a measurement.
BUSY = 0.6
# Beyond so many items a shipped full softmax is slow, as docs/training.md says.
_SAMPLED_FROM = 100_000
_LARGEST = 1e13  # no shop has a larger size
_HALVINGS = 60  # of the logarithm of a size, to less than a millionth
# The factors of products: all item vectors, a layer over a history, the lists of an index (a root), and every
# item compared with all for a few users.
PRODUCTS = {
    "numbers": ("items", "dimension"),
    "dimension_history": ("dimension", "history"),
    "root_numbers": ("items", "dimension"),
    "items_numbers": ("items", "dimension"),
}
_STORES = {"sqlite": "sqlite:///var/history.sqlite", "redis": "redis://HOST:6379/0"}
Size = Literal["users", "events", "items", "requests"]


def derived_sizes(
    users: float = 0, items: float = 0, events: float = 0, dimension: float = 0, history: float = 0
) -> dict[str, float]:
    """The sizes with the products by which quantities grow."""
    return {
        "users": users,
        "items": items,
        "events": events,
        "dimension": dimension,
        "history": history,
        "numbers": items * dimension,
        "dimension_history": dimension * history,
        "root_numbers": items**0.5 * dimension,
        "items_numbers": items**2 * dimension,
    }


@dataclass(frozen=True)
class Quantity:
    """A measured quantity in bytes or seconds: `base`, and for each size a rate by which it grows.

    `largest` has the largest measured value of each size, `worst_error` is the largest relative error.
    """

    base: float
    rates: Mapping[str, float]
    largest: Mapping[str, float]
    worst_error: float = 0.0


@dataclass(frozen=True)
class Figures:
    """All quantities by name, the machines and dates that they were measured on, the measured experiments."""

    quantities: Mapping[str, Quantity]
    measured_on: str
    experiments: Sequence[str]

    def at(self, name: str, sizes: Mapping[str, float]) -> float:
        """A quantity for such sizes."""
        quantity = self.quantities[name]
        return quantity.base + sum(rate * sizes[size] for size, rate in quantity.rates.items())

    def beyond(self, sizes: Mapping[str, float], *prefixes: str) -> dict[str, float]:
        """The largest measured value of each size that exceeds it, for quantities with such names."""
        found: dict[str, float] = {}
        for name, quantity in self.quantities.items():
            if name.startswith(prefixes):
                exceeded = {size: most for size, most in quantity.largest.items() if sizes[size] > most}
                found |= {size: min(most, found.get(size, most)) for size, most in exceeded.items()}
        return found


@cache
def load_figures() -> Figures:
    """The figures that are installed with Turret, as `python -m benchmarks.plan_figures` writes them."""
    content = json.loads(files("turret").joinpath("figures.json").read_text(encoding="utf-8"))
    quantities = {name: Quantity(**entry) for name, entry in content.pop("quantities").items()}
    return Figures(quantities, **content)


@dataclass(frozen=True)
class Machine:
    """Cores, and bytes of memory and of disk that Turret may use."""

    cores: int
    memory: float
    disk: float


@dataclass(frozen=True)
class PlanRequest:
    """The sizes: `requests` are recommendations/s at the peak, `dimension` is D.

    `history` is the number of events that the tower reads. `hours` is how long a training may take.
    """

    users: float
    items: float
    events: float
    requests: float
    machine: Machine
    dimension: int
    history: int
    experiment: str
    epochs: int
    hours: float

    def sizes(self) -> dict[str, float]:
        """The sizes by which quantities grow. A history is at most as long as the users' mean."""
        history = min(self.history, self.events / self.users)
        return derived_sizes(self.users, self.items, self.events, self.dimension, history)

    def check(self, measured: Sequence[str]) -> None:
        """Raise ConfigurationError for impossible sizes, or an experiment that was not measured."""
        if self.events < self.users:
            raise ConfigurationError(
                f"--events {self.events:,.0f} with --users {self.users:,.0f}: a log has an event of every "
                f"user at least; give at least {self.users:,.0f} events, or count only users with events"
            )
        if self.experiment not in measured:
            raise ConfigurationError(
                f"--experiment {self.experiment}: its training was not measured; choose "
                f"{' or '.join(measured)}, whichever is nearer to yours"
            )


def experiment_defaults(name: str) -> dict[str, int]:
    """The dimension, history length and epochs of a shipped experiment, read without torch.

    Raises ConfigurationError if there is no such experiment.
    """
    path = files("turret.training").joinpath("experiments", f"{name}.toml")
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        raise ConfigurationError(
            f"--experiment {name}: no such experiment is shipped; {EXPERIMENT} is the default"
        ) from None
    tower = settings["tower"]
    return {
        "dimension": tower["dimension"],
        "history": tower["user"]["history_length"],
        "epochs": settings["training"]["epochs"],
    }


@dataclass(frozen=True)
class Part:
    """Bytes of memory and of disk on each machine, and seconds; None where the part has none.

    `passing_memory` and `passing_disk` are needed for a while only: by an activation, or while files are
    sorted. `beyond` has the largest measured value of each size that the part exceeds. `note` is for
    people.
    """

    name: str
    memory: float | None = None
    passing_memory: float | None = None
    disk: float | None = None
    passing_disk: float | None = None
    seconds: float | None = None
    machines: int = 1
    beyond: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def most_memory(self) -> float:
        """The most bytes of memory at a time."""
        return max(self.memory or 0.0, self.passing_memory or 0.0)

    @property
    def most_disk(self) -> float:
        """The most bytes of disk at a time."""
        return max(self.disk or 0.0, self.passing_disk or 0.0)


Parts = dict[str, Part]


class Planner:
    """Computes the `parts` for a request from measured figures, in the order in which they run."""

    def __init__(self, request: PlanRequest, figures: Figures) -> None:
        self.request, self._figures, self._sizes = request, figures, request.sizes()
        self.store = "sqlite"
        machines, rate = self._service_machines()
        if machines > 1:  # a Redis for the histories, which takes more of the service's time than SQLite
            self.store = "redis"
            machines, rate = self._service_machines()
            machines = max(2, machines)
        self.workers = min(request.machine.cores, max(1, ceil(request.requests / machines / rate)))
        memory = self.at("service.memory") + self.at("service.worker_memory") * (self.workers - 1)
        # Every event of a user but the first is an example; each epoch ranks for at most 20,000 users.
        training = f"training.{request.experiment}"
        steps = self.at(f"{training}.example_seconds") * (request.events - request.users)
        validation = self.at("training.validation_seconds") * min(request.users, VALIDATION_USERS)
        parts = [
            self._part("preparation", "preparation"),
            self._part(
                "training", training, "training.validation", seconds=(steps + validation) * request.epochs
            ),
            self._part(
                "export and index",
                "export",
                "index",
                "bundle",
                memory=max(self.at("export.memory"), self.at("index.memory")),
                seconds=self.at("export.seconds") + self.at("index.seconds"),
            ),
            self._part(
                "service",
                "service.memory",
                "service.worker_memory",
                "bundle",
                memory=memory,
                # The gate refuses a version without room for so many times its files.
                passing_memory=memory + self.at("bundle.disk") * MEMORY_FACTOR,
                disk=None,
                machines=machines,
                note=f"{rate:,.0f} requests/s of a core that is busy for {100 * BUSY:.0f} % of the time; "
                f"{self.workers} worker{'s' * (self.workers > 1)}" + " on each machine" * (machines > 1),
            ),
            self._part("histories", f"histories.{self.store}", note=f"in {_STORES[self.store]}"),
        ]
        self.parts = {part.name: part for part in parts}

    def at(self, name: str) -> float:
        """A quantity for the sizes of the request."""
        return self._figures.at(name, self._sizes)

    def _part(self, name: str, *prefixes: str, **given: Any) -> Part:
        """The part of the measured quantities with such names; `given` replaces its fields."""
        measured = {
            field: self.at(f"{prefix}.{field}")
            for prefix in prefixes
            for field in ("memory", "disk", "passing_disk", "seconds")
            if f"{prefix}.{field}" in self._figures.quantities
        }
        return Part(name, **measured | {"beyond": self._figures.beyond(self._sizes, *prefixes)} | given)

    def _service_machines(self) -> tuple[int, float]:
        """Machines for the peak, and the requests/s of a core that is busy for `BUSY` of the time."""
        rate = BUSY / self.at(f"service.{self.store}.request_seconds")
        return max(1, ceil(self.request.requests / (rate * self.request.machine.cores))), rate


@dataclass(frozen=True)
class Limit:
    """One machine holds `size` up to `most`, the others as given; None if no size exceeds it."""

    size: Size
    most: float | None
    is_exceeded: bool
    reason: str


Load = Callable[[Parts], float]


def limits(request: PlanRequest, figures: Figures) -> tuple[Limit, ...]:
    """Where one machine ends, in the order of the parts."""
    memory, disk, seconds = request.machine.memory, request.machine.disk, 3600 * request.hours
    # The size, the reason, and the share of a machine that is taken.
    rows: list[tuple[Size, str, Load]] = [
        (
            "users",
            "the ids fill the memory of the preparation",
            lambda p: p["preparation"].most_memory / memory,
        ),
        ("events", "preparing them fills the disk", lambda p: p["preparation"].most_disk / disk),
        (
            "items",
            "training or export fills the memory",
            lambda p: max(p[name].most_memory for name in ("training", "export and index")) / memory,
        ),
        (
            "events",
            f"training takes {request.hours:g} hours",
            lambda p: (p["training"].seconds or 0.0) / seconds,
        ),
        (
            "items",
            "an activation fills the memory of the service",
            lambda p: p["service"].most_memory / memory,
        ),
        (
            "requests",
            f"all cores are busy for {100 * BUSY:.0f} % of the time",
            lambda p: p["service"].machines,
        ),
        (
            "events",
            "the histories fill the memory of one Redis",
            lambda p: p["histories"].most_memory / memory,
        ),
    ]
    if Planner(request, figures).store != "redis":
        del rows[-1]
    found = []
    for name, reason, load in rows:
        most = _largest_size(request, figures, name, load)
        found.append(Limit(name, most, most is not None and getattr(request, name) > most, reason))
    return tuple(found)


def _largest_size(request: PlanRequest, figures: Figures, size: Size, load: Load) -> float | None:
    """The largest value of one size with a load of up to 1; None if all fit, 0 if none does.

    The load must not fall for larger values.
    """

    def fits_at(value: float) -> bool:
        """With more events, users have more each; there are at least as many events as users."""
        changed = replace(request, **{size: value})  # type: ignore[arg-type]  # all sizes are floats
        if size == "users":
            changed = replace(changed, events=max(request.events, value))
        else:
            changed = replace(changed, users=min(request.users, changed.events))
        return load(Planner(changed, figures).parts) <= 1

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
    """The parts of a request, where one machine ends, and shell commands from the log to the service."""

    request: PlanRequest
    parts: tuple[Part, ...]
    limits: tuple[Limit, ...]
    commands: tuple[str, ...]
    measured_on: str


def make_plan(request: PlanRequest, figures: Figures) -> Plan:
    """Compute a plan. Raises ConfigurationError for a request that can't be planned."""
    request.check(figures.experiments)
    planner = Planner(request, figures)
    store = _STORES[planner.store]
    commands = (
        "turret data prepare LOG --to var/prepared",
        _train_command(request),
        "turret export var/run --bundles var/bundles --version first",
        "turret index var/bundles/first --kind auto --version first-indexed",
        "turret activate first-indexed --bundles var/bundles",
        f"turret history load --data var/prepared --store {store}",
        f"turret serve --bundles var/bundles --workers {planner.workers} --store {store}",
    )
    parts = tuple(planner.parts.values())
    return Plan(request, parts, limits(request, figures), commands, figures.measured_on)


def _train_command(request: PlanRequest) -> str:
    defaults = experiment_defaults(request.experiment)
    words = [f"turret train --data var/prepared --run var/run --experiment {request.experiment}"]
    for setting, name in (
        ("tower.dimension", "dimension"),
        ("tower.user.history_length", "history"),
        ("training.epochs", "epochs"),
    ):
        if getattr(request, name) != defaults[name]:
            words.append(f"--set {setting}={getattr(request, name)}")
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
        text_table(headings, [_part_row(part, machine) for part in plan.parts]),
        *(f"{part.name}: {part.note}" for part in plan.parts if part.note),
        *(
            f"{part.name}: measured up to {_sizes(part.beyond)}; beyond that computed"
            for part in plan.parts
            if part.beyond
        ),
        f"\nA machine of {cores}, {size(machine.memory)} of memory and {size(machine.disk)} of disk, with "
        "the other sizes as given:",
        text_table(("up to", "then"), map(_limit_row, plan.limits), right=False),
        "docs/scale.md says what to turn to, and what is assumed.",
        "\nCommands:",
        *(f"  {command}" for command in plan.commands),
        f"\nMeasured on {plan.measured_on}; times are those of one of its cores.",
    ]
    return "\n".join(lines)


def _part_row(part: Part, machine: Machine) -> list[str]:
    """The cells of a part; a ! marks more than the machine has."""
    amounts = (
        (part.memory, machine.memory),
        (part.passing_memory, machine.memory),
        (part.disk, machine.disk),
        (part.passing_disk, machine.disk),
    )
    cells = ["" if value is None else size(value) + " !" * (value > most) for value, most in amounts]
    return [part.name, *cells, duration(part.seconds) if part.seconds else "", f"{part.machines:,}"]


def _sizes(beyond: Mapping[str, float]) -> str:
    return " and ".join(
        f"{name} {most:,.0f}" if name in ("dimension", "history") else f"{most:,.0f} {name}"
        for name, most in beyond.items()
    )


def _limit_row(limit: Limit) -> list[str]:
    most = "any number of" if limit.most is None else rounded_count(limit.most)
    unit = "requests/s" if limit.size == "requests" else limit.size
    return [f"{most} {unit}" + " (exceeded)" * limit.is_exceeded, limit.reason]


# ---- The command

_MOST = 1e9  # JSON has no infinity
_COUNT = re.compile(r"([0-9][0-9_,]*(?:\.[0-9]+)?(?:e[+]?[0-9]{1,2})?)([kMG]?)")
_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}

app = typer.Typer(rich_markup_mode="markdown")


@app.command()
def plan(
    users: Annotated[str, typer.Option(metavar="N", help="Users with events, such as 250k or 2.5M.")],
    items: Annotated[str, typer.Option(metavar="N", help="Items of the catalog.")],
    events: Annotated[str, typer.Option(metavar="N", help="Events of the log.")],
    requests: Annotated[str, typer.Option(metavar="N", help="Recommendations a second at the peak.")] = "10",
    experiment: Annotated[
        str,
        typer.Option("--experiment", "-e", metavar="NAME", help="youtubednn or transformer."),
    ] = EXPERIMENT,
    dimension: Annotated[
        int | None, typer.Option(metavar="D", min=1, help="Width of the vectors (the experiment's).")
    ] = None,
    history: Annotated[
        int | None,
        typer.Option(metavar="T", min=1, help="Events that the user tower reads (the experiment's)."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Epochs of a training (the experiment's).")
    ] = None,
    cores: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Cores of a machine (this one's).")
    ] = None,
    memory: Annotated[
        float | None, typer.Option(metavar="GB", min=0.1, max=_MOST, help="Memory of a machine (this one's).")
    ] = None,
    disk: Annotated[
        float | None,
        typer.Option(metavar="GB", min=0.1, max=_MOST, help="Disk of a machine (free on this one)."),
    ] = None,
    hours: Annotated[float, typer.Option(min=0.01, max=_MOST, help="How long a training may take.")] = 8.0,
    as_json: AsJson = False,
) -> None:
    """Compute memory, disk, time and machines for a shop, and where one machine ends.

    Every figure is computed from measured ones; sizes beyond those measured are named. docs/scale.md says
    what was measured, and how far plans were from measured runs.

    Example: `turret plan --users 2M --items 500k --events 100M --requests 200`
    """
    defaults = experiment_defaults(experiment)
    here = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    request = PlanRequest(
        users=parse_count("--users", users),
        items=parse_count("--items", items),
        events=parse_count("--events", events),
        requests=parse_count("--requests", requests, least=0),
        machine=Machine(
            cores or os.cpu_count() or 1,
            here if memory is None else 1e9 * memory,
            float(shutil.disk_usage(".").free) if disk is None else 1e9 * disk,
        ),
        dimension=dimension or defaults["dimension"],
        history=history or defaults["history"],
        experiment=experiment,
        epochs=epochs or defaults["epochs"],
        hours=hours,
    )
    made = make_plan(request, load_figures())
    print(json.dumps(asdict(made), indent=2) if as_json else plan_text(made))


def parse_count(option: str, text: str, least: float = 1) -> float:
    """Read a count such as 250000, 250,000, 250k, 2.5M or 1e8. Raises ConfigurationError for others."""
    match = _COUNT.fullmatch(text.strip())
    value = float(re.sub("[_,]", "", match[1])) * _FACTORS[match[2]] if match else -1.0
    if not least <= value <= _LARGEST:
        raise ConfigurationError(
            f"{option} {text}: it must be a number from {least:g} to {_LARGEST:.0e}, such as 250000, "
            "250k, 2.5M or 1e8"
        )
    return value
