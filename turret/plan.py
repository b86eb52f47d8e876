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
KEEP = 5  # the default of `turret retrain --keep`
VALIDATION_USERS = 20_000  # the default of training.validation_users
# The share of a core that is planned for: requests come in bursts. An assumption, not a measurement.
BUSY = 0.6
# Retrainings whose run and bundles stay: the newest, and the live and the previous version if they are older.
# Of each the bundle with an exact index and the one with a tuned index.
_RUNS, _BUNDLES = KEEP + 2, 2 * (KEEP + 2)
# Beyond so many items a shipped full softmax is slow, as docs/training.md says.
_SAMPLED_FROM = 100_000
_LARGEST = 1e13  # no shop has a larger size
_HALVINGS = 60  # of the logarithm of a size, to less than a millionth
_TORCHRUN = "torchrun --nproc-per-node N -m -- turret train"
_SPARK, _MILVUS = "--engine spark://HOST:7077", "--engine milvus://HOST:19530"
# The factors of products: all item vectors, a layer over a history, the lists of an index (a root), and every
# item compared with all for a few users.
PRODUCTS = {
    "numbers": ("items", "dimension"),
    "dimension_history": ("dimension", "history"),
    "root_numbers": ("items", "dimension"),
    "items_numbers": ("items", "dimension"),
}
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
    sorted. `beyond` has the largest measured value of each size that the part exceeds. `notes` are sentences
    for people.
    """

    name: str
    memory: float | None = None
    passing_memory: float | None = None
    disk: float | None = None
    passing_disk: float | None = None
    seconds: float | None = None
    machines: int = 1
    beyond: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def most_memory(self) -> float:
        """The most bytes of memory at a time."""
        return max(self.memory or 0.0, self.passing_memory or 0.0)

    @property
    def most_disk(self) -> float:
        """The most bytes of disk at a time."""
        return max(self.disk or 0.0, self.passing_disk or 0.0)


class Planner:
    """Computes the `parts` for a request from measured figures, by kind, in the order in which they run."""

    def __init__(self, request: PlanRequest, figures: Figures) -> None:
        self.request, self._figures, self._sizes = request, figures, request.sizes()
        self.store = "sqlite"
        self.machines, self._core_rate = self._service_machines()
        if self.machines > 1:  # a Redis for the histories, which takes more of the service's time than SQLite
            self.store = "redis"
            machines, self._core_rate = self._service_machines()
            self.machines = max(2, machines)
        needed = ceil(request.requests / self.machines / self._core_rate)
        self.workers = min(request.machine.cores, max(1, needed))
        # One Redis while its machine holds the histories and a core answers; else three masters or more.
        memory = self.at("histories.redis.memory") / request.machine.memory
        reads = request.requests * self.at("service.redis.read_seconds") / BUSY
        self.masters = 1 if memory <= 1 and reads <= 1 else max(3, ceil(max(memory, reads)))
        of_data = {
            "preparation": self._part("preparation", "preparation"),
            "training": self._training(),
            "index": self._part(
                "export and index",
                "export",
                "index",
                "bundle",
                memory=max(self.at("export.memory"), self.at("index.memory")),
                seconds=self.at("export.seconds") + self.at("index.seconds"),
            ),
        }
        self.parts = of_data | {"service": self._service(), "histories": self._histories()} | self._kept()

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

    def _training(self) -> Part:
        """Every event of a user but the first is an example; each epoch ranks for at most 20,000 users."""
        request, kind = self.request, f"training.{self.request.experiment}"
        steps = self.at(f"{kind}.example_seconds") * (request.events - request.users)
        validation = self.at("training.validation_seconds") * min(request.users, VALIDATION_USERS)
        seconds = (steps + validation) * request.epochs
        note = f"{request.epochs} epochs of {request.experiment} at most, with a validation after each"
        return self._part("training", kind, "training.validation", seconds=seconds, notes=(note,))

    def _service_machines(self) -> tuple[int, float]:
        """Machines for the peak, and the requests/s of a core that is busy for `BUSY` of the time."""
        rate = BUSY / self.at(f"service.{self.store}.request_seconds")
        return max(1, ceil(self.request.requests / (rate * self.request.machine.cores))), rate

    def activation_memory(self, workers: int) -> tuple[float, float]:
        """Resident bytes of a machine's service at rest, and in an activation.

        The gate refuses a version without room for `MEMORY_FACTOR` times its files.
        """
        rest = self.at("service.memory") + self.at("service.worker_memory") * (workers - 1)
        return rest, rest + self.at("bundle.disk") * MEMORY_FACTOR

    def _service(self) -> Part:
        several, count = self.machines > 1, self.workers
        notes = [
            f"{self._core_rate:,.0f} requests/s of a core that is busy for {100 * BUSY:.0f} % of the time; "
            f"{count} worker{'s' * (count > 1)}" + " on each machine" * several
        ]
        if several:
            cores = self.request.requests * self.at("proxy.request_seconds") / BUSY
            notes.append(f"the proxy in front takes {cores:.1f} cores")
        memory, passing = self.activation_memory(count)
        beyond = self._figures.beyond(self._sizes, "service.memory", "service.worker_memory", "bundle")
        return Part("service", memory, passing, machines=self.machines, beyond=beyond, notes=tuple(notes))

    def _histories(self) -> Part:
        if self.store == "sqlite":
            return self._part("histories in SQLite", "histories.sqlite")
        whole = self._part(
            "histories in a Redis" + " Cluster" * (self.masters > 1),
            "histories.redis",
            machines=self.masters,
            notes=("without replicas of the Redis",),
        )
        memory, disk = (value and value / self.masters for value in (whole.memory, whole.disk))
        return replace(whole, memory=memory, disk=disk)

    def _kept(self) -> dict[str, Part]:
        run, stored = f"training.{self.request.experiment}.disk", f"histories.{self.store}.disk"
        bundles = _BUNDLES * self.at("bundle.disk")
        note = f"runs and bundles of {KEEP} retrainings, and of the live and the previous version"
        versions = {"disk": self.at(run) * _RUNS + bundles, "notes": (note,)}
        return {
            "versions": self._part("versions kept", run, "bundle", **versions),
            "backup": self._part("one backup", stored, "bundle", disk=self.at(stored) + bundles),
        }


@dataclass(frozen=True)
class Limit:
    """One machine holds `size` up to `most`, the others as given; None if no size exceeds it.

    `remedy` names the alternatives beyond.
    """

    size: Size
    most: float | None
    is_exceeded: bool
    reason: str
    remedy: str


Load = Callable[[Planner], float]


def limits(request: PlanRequest, figures: Figures) -> tuple[Limit, ...]:
    """Where one machine ends, in the order of the parts."""
    machine, hours = request.machine, request.hours
    # The size, the reason, the remedy, and the share of a machine that is taken.
    rows: list[tuple[Size, str, str, Load]] = [
        (
            "users",
            "the ids fill the memory of the preparation",
            "more memory, or fewer users: those of a newer part of the log",
            lambda one: one.parts["preparation"].most_memory / machine.memory,
        ),
        (
            "events",
            "preparing them fills the disk",
            f"a larger disk, or Spark: `turret data prepare {_SPARK}`",
            lambda one: one.parts["preparation"].most_disk / machine.disk,
        ),
        (
            "items",
            "training or export fills the memory",
            "more memory, or a smaller dimension",
            lambda one: max(one.parts[name].most_memory for name in ("training", "index")) / machine.memory,
        ),
        (
            "events",
            f"training takes {hours:g} hours",
            f"warm starts (`turret retrain`), fewer epochs, a GPU, or several processes: `{_TORCHRUN}`",
            lambda one: (one.parts["training"].seconds or 0.0) / (3600 * hours),
        ),
        (
            "items",
            "an activation fills the memory of the service",
            "more memory, a smaller dimension, or a vector engine: "
            f"`turret publish {_MILVUS}` or `redis://HOST:6379`",
            lambda one: one.activation_memory(machine.cores)[1] / machine.memory,
        ),
        (
            "requests",
            f"all cores are busy for {100 * BUSY:.0f} % of the time",
            "replicas of the service behind a proxy, with the histories in a Redis",
            lambda one: one.machines,
        ),
    ]
    if Planner(request, figures).machines > 1:
        rows.append(
            (
                "events",
                "the histories fill the memory of one Redis",
                "a Redis Cluster; SQLite, on one machine, holds them on its disk",
                lambda one: one.at("histories.redis.memory") / machine.memory,
            )
        )
    found = []
    for name, reason, remedy, load in rows:
        most = _largest_size(request, figures, name, load)
        is_exceeded = most is not None and getattr(request, name) > most
        found.append(Limit(name, most, is_exceeded, reason, remedy))
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
        return load(Planner(changed, figures)) <= 1

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
    """The parts of a request, where one machine ends, and the commands."""

    request: PlanRequest
    parts: tuple[Part, ...]
    limits: tuple[Limit, ...]
    assumptions: tuple[str, ...]
    commands: tuple[str, ...]


def make_plan(request: PlanRequest, figures: Figures) -> Plan:
    """Compute a plan. Raises ConfigurationError for a request that can't be planned."""
    request.check(figures.experiments)
    planner = Planner(request, figures)
    parts, found = tuple(planner.parts.values()), limits(request, figures)
    assumptions = (
        f"measured on {figures.measured_on}; times are those of one of its cores",
        f"a core of the service is planned to be busy for {100 * BUSY:.0f} % of the time; further cores "
        "and machines to answer as many requests as the first",
        "a request names a user with stored events and asks for 10 items; ids have up to 10 characters",
        "prepared data and bundles hold a title, genres and a price of each item, no features of users",
        "sizes are those of the peak; leave memory for the system and for growth",
    )
    commands = _commands(planner, " ".join(one.remedy for one in found if one.is_exceeded))
    return Plan(request, parts, found, assumptions, commands)


def _commands(planner: Planner, remedies: str) -> tuple[str, ...]:
    """Shell commands from the log to the service, with the engines that the `remedies` name."""
    store = "sqlite:///var/history.sqlite"
    if planner.store == "redis":
        store = "redis://HOST:6379/0" if planner.masters == 1 else "redis+cluster://HOST:6379"
    index = "index var/bundles/first --kind auto"
    if _MILVUS in remedies:
        index = f"publish var/bundles/first {_MILVUS}"
    return (
        "turret data prepare LOG --to var/prepared" + f" {_SPARK}" * (_SPARK in remedies),
        _train_command(planner.request, _TORCHRUN if _TORCHRUN in remedies else "turret train"),
        "turret export var/run --bundles var/bundles --version first",
        f"turret {index} --version first-indexed",
        "turret activate first-indexed --bundles var/bundles",
        f"turret history load --data var/prepared --store {store}",
        f"turret serve --bundles var/bundles --workers {planner.workers} --store {store}",
    )


def _train_command(request: PlanRequest, command: str) -> str:
    defaults = experiment_defaults(request.experiment)
    words = [f"{command} --data var/prepared --run var/run --experiment {request.experiment}"]
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
        *(f"{part.name}: {note}" for part in plan.parts for note in part.notes),
        *(
            f"{part.name}: measured up to {_sizes(part.beyond)}; beyond that computed"
            for part in plan.parts
            if part.beyond
        ),
        f"\nA machine of {cores}, {size(machine.memory)} of memory and {size(machine.disk)} of disk, with "
        "the other sizes as given:",
        text_table(("up to", "then", "turn to"), map(_limit_row, plan.limits), right=False),
        "\nCommands:",
        *(f"  {command}" for command in plan.commands),
        "\nAssumptions:",
        *(f"- {assumption}" for assumption in plan.assumptions),
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
    return [f"{most} {unit}" + " (exceeded)" * limit.is_exceeded, limit.reason, limit.remedy]


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
