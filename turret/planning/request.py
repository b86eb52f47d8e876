"""What is planned for: the sizes of a shop, the settings of its model, and the machines."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from turret.data.errors import ConfigurationError

EXPERIMENT = "youtubednn"
KEEP = 5  # the default of `turret retrain --keep`
VALIDATION_USERS = 20_000  # the default of training.validation_users


@dataclass(frozen=True)
class Machine:
    """Cores, and bytes of memory and of disk that Turret may use."""

    cores: int
    memory: float
    disk: float


def derived_sizes(
    users: float = 0, items: float = 0, events: float = 0, dimension: float = 0, history: float = 0
) -> dict[str, float]:
    """The sizes with their products by which quantities grow.

    `numbers` are those of all item vectors. The root of the items is the length of the lists of an index;
    their square counts where each of a few users at a time is compared with all of them.
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


# The sizes of which each product is made.
FACTORS = {
    "numbers": ("items", "dimension"),
    "dimension_history": ("dimension", "history"),
    "root_numbers": ("items", "dimension"),
    "items_numbers": ("items", "dimension"),
}


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
        return derived_sizes(
            users=self.users,
            items=self.items,
            events=self.events,
            dimension=self.dimension,
            history=min(self.history, self.events / self.users),
        )

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


def experiment_defaults(name: str) -> Mapping[str, Any]:
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
    return {
        "dimension": settings["tower"]["dimension"],
        "history": settings["tower"]["user"]["history_length"],
        "epochs": settings["training"]["epochs"],
    }
