"""The parts of a plan: memory, disk, time and machines of each, from the sizes of a shop."""

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from math import ceil

from turret.data.errors import ConfigurationError
from turret.planning.figures import Amount, Figures, derived_sizes, least_of
from turret.tower.config import MEMORY_FACTOR

EXPERIMENT = "youtubednn"
KEEP = 5  # the default of `turret retrain --keep`
VALIDATION_USERS = 20_000  # the default of training.validation_users
# The share of a core that is planned for: requests come in bursts. An assumption, not a measurement.
BUSY = 0.6
# Retrainings whose run and bundles stay: the newest, and the live and the previous version if they are older.
_RUNS = KEEP + 2
# Of each the bundle with an exact index and the one with a tuned index.
_BUNDLES = 2 * _RUNS


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

    def check(self, measured: tuple[str, ...]) -> None:
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
    sorted. `notes` are sentences for people.
    """

    name: str
    memory: Amount | None = None
    disk: Amount | None = None
    seconds: Amount | None = None
    passing_memory: Amount | None = None
    passing_disk: Amount | None = None
    machines: int = 1
    notes: tuple[str, ...] = ()

    @property
    def most_memory(self) -> float:
        """The most bytes of memory at a time."""
        return max(amount.value if amount else 0.0 for amount in (self.memory, self.passing_memory))

    @property
    def most_disk(self) -> float:
        """The most bytes of disk at a time."""
        return max(amount.value if amount else 0.0 for amount in (self.disk, self.passing_disk))

    @property
    def beyond(self) -> dict[str, float]:
        """The largest measured value of each size that exceeds it."""
        amounts = (self.memory, self.disk, self.seconds, self.passing_memory, self.passing_disk)
        return least_of(*(amount.beyond for amount in amounts if amount))


class Planner:
    """Computes the parts for a request from measured figures."""

    def __init__(self, request: PlanRequest, figures: Figures) -> None:
        self.request, self.figures = request, figures
        self._sizes = request.sizes()
        self.machines, self.core_rate = self._service_machines("sqlite")
        if self.machines > 1:  # a Redis for the histories, which takes more of the service's time than SQLite
            self.machines, self.core_rate = self._service_machines("redis")
            self.machines = max(2, self.machines)
        self.store = "sqlite" if self.machines == 1 else "redis"

    def _at(self, name: str) -> Amount:
        return self.figures.at(name, self._sizes)

    def _service_machines(self, store: str) -> tuple[int, float]:
        """Machines for the peak, and the requests/s of a core that is busy for `BUSY` of the time."""
        rate = BUSY / self._at(f"service.{store}.request_seconds").value
        return max(1, ceil(self.request.requests / (rate * self.request.machine.cores))), rate

    @property
    def workers(self) -> int:
        """Workers of each machine's service."""
        needed = ceil(self.request.requests / self.machines / self.core_rate)
        return min(self.request.machine.cores, max(1, needed))

    @property
    def redis_machines(self) -> int:
        """One Redis while its machine holds the histories and a core answers; else three masters or more."""
        memory = self._at("histories.redis.memory").value / self.request.machine.memory
        requests = self.request.requests * self._at("service.redis.read_seconds").value / BUSY
        needed = ceil(max(memory, requests))
        return 1 if needed <= 1 else max(3, needed)

    def preparation(self) -> Part:
        """`turret data prepare`: sorted on disk, memory holds the ids."""
        return Part(
            "preparation",
            memory=self._at("preparation.memory"),
            disk=self._at("preparation.disk"),
            seconds=self._at("preparation.seconds"),
            passing_disk=self._at("preparation.passing_disk"),
        )

    def training(self) -> Part:
        """`turret train`: one process, whose memory grows with the item table.

        Every event of a user but the first is an example. Each epoch ends with a ranking of the catalog for
        at most 20,000 users.
        """
        request = self.request
        measured = f"training.{request.experiment}"
        steps = self._at(f"{measured}.example_seconds") * (request.events - request.users)
        validation = self._at("training.validation_seconds") * min(request.users, VALIDATION_USERS)
        return Part(
            "training",
            memory=self._at(f"{measured}.memory"),
            disk=self._at(f"{measured}.disk"),
            seconds=(steps + validation) * request.epochs,
            notes=(f"{request.epochs} epochs of {request.experiment} at most, with a validation after each",),
        )

    def index(self) -> Part:
        """`turret export` and `turret index`, one after the other, and the bundle with its index."""
        return Part(
            "export and index",
            memory=max(self._at("export.memory"), self._at("index.memory"), key=lambda one: one.value),
            disk=self._at("bundle.disk"),
            seconds=self._at("export.seconds") + self._at("index.seconds"),
        )

    def service(self) -> Part:
        """`turret serve`, at rest and during an activation."""
        notes = [
            f"{self.core_rate:,.0f} requests/s of a core that is busy for {100 * BUSY:.0f} % of the time; "
            f"{self.workers} worker{'s' * (self.workers > 1)}" + " on each machine" * (self.machines > 1)
        ]
        if self.machines > 1:
            cores = self.request.requests * self._at("proxy.request_seconds").value / BUSY
            notes.append(f"the proxy in front takes {cores:.1f} cores")
        return Part(
            "service",
            memory=self.service_memory(self.workers),
            passing_memory=self.activation_memory(self.workers),
            machines=self.machines,
            notes=tuple(notes),
        )

    def service_memory(self, workers: int) -> Amount:
        """Resident bytes of one machine's service with its live version."""
        return self._at("service.memory") + self._at("service.worker_memory") * (workers - 1)

    def activation_memory(self, workers: int) -> Amount:
        """The gate refuses a version without room for `MEMORY_FACTOR` times its files."""
        return self.service_memory(workers) + self._at("bundle.disk") * MEMORY_FACTOR

    def histories(self) -> Part:
        """The stored histories: SQLite for one machine, a Redis for several."""
        disk, seconds = (self._at(f"histories.{self.store}.{name}") for name in ("disk", "load_seconds"))
        if self.store == "sqlite":
            return Part("histories in SQLite", disk=disk, seconds=seconds)
        machines = self.redis_machines
        return Part(
            "histories in a Redis" if machines == 1 else "histories in a Redis Cluster",
            memory=self._at("histories.redis.memory") * (1 / machines),
            disk=disk * (1 / machines),
            seconds=seconds,
            machines=machines,
            notes=("without replicas of the Redis",),
        )

    def versions(self) -> Part:
        """The runs and bundles that `turret retrain` keeps."""
        run = self._at(f"training.{self.request.experiment}.disk")
        return Part(
            "versions kept",
            disk=run * _RUNS + self._at("bundle.disk") * _BUNDLES,
            notes=(f"runs and bundles of {KEEP} retrainings, and of the live and the previous version",),
        )

    def backup(self) -> Part:
        """A copy of the stored histories and of all bundles, as `deploy/backup` makes it."""
        stored = self._at(f"histories.{self.store}.disk")
        return Part("one backup", disk=stored + self._at("bundle.disk") * _BUNDLES)

    def parts(self) -> tuple[Part, ...]:
        """All parts, in the order in which they run."""
        return (
            self.preparation(),
            self.training(),
            self.index(),
            self.service(),
            self.histories(),
            self.versions(),
            self.backup(),
        )
