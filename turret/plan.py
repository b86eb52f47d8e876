"""`turret plan`: memory, disk, time and requests/s for a shop, from measured figures."""

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from math import ceil
from typing import Annotated

import typer

from turret.data.errors import ConfigurationError
from turret.data.text import duration, percent, size, text_table
from turret.tower.cli import AsJson

EXPERIMENT = "youtubednn"
# The share of a core that is planned for: requests come in bursts. It is an assumption, not a measurement.
BUSY = 0.6


def derived_sizes(
    users: float = 0, items: float = 0, events: float = 0, dimension: float = 0, history: float = 0
) -> dict[str, float]:
    """The sizes, and the products of sizes by which quantities grow.

    The products stand for all item vectors, a layer over a history, the lists of an index (a root), and a
    ranking for fewer users at a time in a larger catalog (the square of the items).
    """
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
    """All quantities by name, the machines and dates that they were measured on, the measured experiments.

    An experiment has its `dimension`, `history`, `epochs` and `validation_users`.
    """

    quantities: Mapping[str, Quantity]
    measured_on: str
    experiments: Mapping[str, Mapping[str, int]]

    def at(self, name: str, sizes: Mapping[str, float]) -> float:
        """The value of a quantity for these sizes."""
        quantity = self.quantities[name]
        return quantity.base + sum(rate * sizes[size] for size, rate in quantity.rates.items())

    def defaults(self, experiment: str) -> Mapping[str, int]:
        """The settings of a measured experiment. Raises ConfigurationError for one that was not measured."""
        if experiment not in self.experiments:
            raise ConfigurationError(
                f"--experiment {experiment}: its training was not measured; choose "
                f"{' or '.join(self.experiments)}, whichever is nearer to yours"
            )
        return self.experiments[experiment]

    def beyond(self, sizes: Mapping[str, float], *prefixes: str) -> dict[str, float]:
        """The largest measured value of each size that is beyond it, of quantities whose names begin so."""
        smallest: dict[str, float] = {}
        for name, quantity in self.quantities.items():
            if name.startswith(prefixes):
                exceeded = {size: most for size, most in quantity.largest.items() if sizes[size] > most}
                smallest |= {size: min(most, smallest.get(size, most)) for size, most in exceeded.items()}
        return smallest


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


@dataclass(frozen=True)
class Part:
    """The most bytes of memory and of disk at a time, and seconds; 0 where the part needs none.

    `beyond` has the largest measured value of each size that the part exceeds.
    """

    memory: float
    disk: float
    seconds: float
    beyond: Mapping[str, float]


@dataclass(frozen=True)
class Plan:
    """The parts of a shop, the requests/s of one machine, and the share that each limit takes of it.

    The shares descend: the machine reaches the first limit first. `machines` such machines answer the
    requests, with the histories in `store`: a Redis for more than one machine, else SQLite.
    """

    request: PlanRequest
    parts: Mapping[str, Part]
    requests: float
    machines: int
    store: str
    shares: Mapping[str, float]
    measured_on: str


def make_plan(request: PlanRequest, figures: Figures) -> Plan:
    """Compute a plan for a measured experiment. Raises ConfigurationError for impossible sizes."""
    if request.events < request.users:
        raise ConfigurationError(
            f"--events {request.events:,.0f} with --users {request.users:,.0f}: a log has an event of every "
            f"user at least; give at least {request.users:,.0f} events, or count only users with events"
        )
    sizes, cores = request.sizes(), request.machine.cores

    def machines_for(store: str) -> tuple[float, int]:
        """The requests/s of a machine, and the machines for the peak."""
        rate = cores * BUSY / figures.at(f"service.{store}.request_seconds", sizes)
        return rate, max(1, ceil(request.requests / rate))

    store = "sqlite"
    rate, machines = machines_for(store)
    if machines > 1:  # a Redis takes more of the service's time than SQLite
        store = "redis"
        rate, machines = machines_for(store)
        machines = max(2, machines)
    workers = min(cores, max(1, ceil(request.requests / machines / (rate / cores))))
    parts = _parts(request, figures, store, workers)
    shares = _shares(request, parts, rate)
    return Plan(request, parts, rate, machines, store, shares, figures.measured_on)


def _parts(request: PlanRequest, figures: Figures, store: str, workers: int) -> dict[str, Part]:
    """The needs of each part, in the order in which they run."""
    from turret.tower.config import MEMORY_FACTOR

    sizes = request.sizes()

    def at(name: str) -> float:
        return figures.at(name, sizes)

    def part(*prefixes: str, **replacements: float) -> Part:
        """The sums of the measured quantities whose names begin so; `replacements` replace some."""
        names = {need: [f"{prefix}.{need}" for prefix in prefixes] for need in ("memory", "disk", "seconds")}
        needs = {
            need: sum(at(quantity) for quantity in quantities if quantity in figures.quantities)
            for need, quantities in names.items()
        }
        return Part(**needs | replacements, beyond=figures.beyond(sizes, *prefixes))

    # Every event of a user but the first is an example; each epoch ranks for at most `validation_users`.
    training, settings = f"training.{request.experiment}", figures.experiments[request.experiment]
    epoch = at(f"{training}.example_seconds") * (request.events - request.users)
    epoch += at("training.validation_seconds") * min(request.users, settings["validation_users"])
    # The gate refuses a version if the free memory is below this multiple of its files.
    activation = at("bundle.disk") * MEMORY_FACTOR
    served = at("service.memory") + at("service.worker_memory") * (workers - 1) + activation
    indexed = max(at("export.memory"), at("index.memory"))
    return {
        "preparation": part("preparation"),
        "training": part(training, "training.validation", seconds=epoch * request.epochs),
        "export and index": part("export", "index", "bundle", memory=indexed),
        "service": part("service", "bundle", memory=served, disk=0.0),
        f"histories in {store}": part(f"histories.{store}"),
    }


def _shares(request: PlanRequest, parts: Mapping[str, Part], rate: float) -> dict[str, float]:
    """The share of a machine that each limit takes, the largest first."""
    machine = request.machine
    shares = {f"memory: {name}": part.memory / machine.memory for name, part in parts.items() if part.memory}
    shares |= {
        "disk: all parts": sum(part.disk for part in parts.values()) / machine.disk,
        f"time: training in {request.hours:g} h": parts["training"].seconds / (3600 * request.hours),
        "requests/s": request.requests / rate,
    }
    return dict(sorted(shares.items(), key=lambda limit: -limit[1]))


def plan_text(plan: Plan) -> str:
    """A text with the parts, and the shares of one machine that they take."""
    request, machine = plan.request, plan.request.machine
    needs = [
        [
            name,
            *(size(amount) if amount else "" for amount in (part.memory, part.disk)),
            duration(part.seconds) if part.seconds else "",
            ", ".join(f"{most:,.0f} {name}" for name, most in part.beyond.items()),
        ]
        for name, part in plan.parts.items()
    ]
    first, share = next(iter(plan.shares.items()))
    return "\n".join(
        [
            f"{request.users:,.0f} users, {request.items:,.0f} items, {request.events:,.0f} events, "
            f"{request.requests:,.0f} requests/s; {request.experiment}, dimension {request.dimension}, "
            f"history {request.history}",
            text_table(("part", "memory", "disk", "time", "computed beyond"), needs),
            f"One machine of {machine.cores} cores, {size(machine.memory)} of memory and "
            f"{size(machine.disk)} of disk, which answers {plan.requests:,.0f} requests/s:",
            text_table(("limit", "taken"), [(name, percent(taken)) for name, taken in plan.shares.items()]),
            f"First limit: {first}, {percent(share)} of it taken.",
            f"Machines for the requests: {plan.machines:,}.",
            "docs/scale.md says what to turn to at each limit, and what is assumed.",
            f"Measured on {plan.measured_on}; times are those of one of its cores.",
        ]
    )


# ---- The command

_MOST = 1e9  # JSON has no infinity
_LARGEST = 1e13  # no shop has a larger size
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
    figures = load_figures()
    defaults = figures.defaults(experiment)
    request = PlanRequest(
        users=parse_count("--users", users),
        items=parse_count("--items", items),
        events=parse_count("--events", events),
        requests=parse_count("--requests", requests, least=0),
        machine=machine_of(cores, memory, disk),
        dimension=dimension or defaults["dimension"],
        history=history or defaults["history"],
        experiment=experiment,
        epochs=epochs or defaults["epochs"],
        hours=hours,
    )
    shop_plan = make_plan(request, figures)
    print(json.dumps(asdict(shop_plan), indent=2) if as_json else plan_text(shop_plan))


def machine_of(cores: int | None, memory: float | None, disk: float | None) -> Machine:
    """A machine with these cores, GB of memory and GB of disk; None takes the figure of this machine."""
    here = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return Machine(
        cores or os.cpu_count() or 1,
        here if memory is None else 1e9 * memory,
        float(shutil.disk_usage(".").free) if disk is None else 1e9 * disk,
    )


def parse_count(option: str, text: str, least: float = 1) -> float:
    """Read a count such as 250000, 250,000, 250k, 2.5M or 1e8. Raises ConfigurationError for another text."""
    match = _COUNT.fullmatch(text.strip())
    value = float(re.sub("[_,]", "", match[1])) * _FACTORS[match[2]] if match else -1.0
    if not least <= value <= _LARGEST:
        raise ConfigurationError(
            f"{option} {text}: it must be a number from {least:g} to {_LARGEST:.0e}, such as 250000, "
            "250k, 2.5M or 1e8"
        )
    return value
