"""`turret plan`: read the options, plan and print."""

import json
import os
import shutil
from dataclasses import dataclass

from turret.planning.amounts import parse_count
from turret.planning.figures import load_figures
from turret.planning.plan import make_plan
from turret.planning.printing import print_plan
from turret.planning.request import Machine, PlanRequest, experiment_defaults


@dataclass(frozen=True)
class GivenPlan:
    """The options as given; None takes the default of the experiment or of this machine."""

    users: str
    items: str
    events: str
    requests: str
    experiment: str
    dimension: int | None
    history: int | None
    epochs: int | None
    cores: int | None
    memory: float | None
    disk: float | None
    hours: float

    def request(self) -> PlanRequest:
        """Parse and complete the options. Raises ConfigurationError."""
        defaults = experiment_defaults(self.experiment)
        return PlanRequest(
            users=parse_count("--users", self.users),
            items=parse_count("--items", self.items),
            events=parse_count("--events", self.events),
            requests=parse_count("--requests", self.requests, least=0),
            machine=Machine(
                self.cores or os.cpu_count() or 1,
                _this_memory() if self.memory is None else 1e9 * self.memory,
                float(shutil.disk_usage(".").free) if self.disk is None else 1e9 * self.disk,
            ),
            dimension=self.dimension or defaults["dimension"],
            history=self.history or defaults["history"],
            experiment=self.experiment,
            epochs=self.epochs or defaults["epochs"],
            hours=self.hours,
        )


def _this_memory() -> float:
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def plan_shop(given: GivenPlan, as_json: bool) -> None:
    """Print a plan. Raises ConfigurationError."""
    plan = make_plan(given.request(), load_figures())
    if as_json:
        print(json.dumps(plan.as_json(), indent=2))
    else:
        print_plan(plan)
