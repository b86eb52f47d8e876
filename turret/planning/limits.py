"""Where one machine ends: the largest size of each kind that it holds, and what to turn to beyond.

A distributed engine is named only if it was measured.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from turret.planning.figures import Figures
from turret.planning.index import plan_index
from turret.planning.preparation import plan_preparation
from turret.planning.request import PlanRequest
from turret.planning.service import BUSY, activation_memory, capacity
from turret.planning.training import plan_training, training_seconds

# Sizes beyond are no shop's.
_MOST = 1e13
_STEPS = 60  # halvings of the logarithm, to less than a millionth of a size
TORCHRUN = "torchrun --nproc-per-node N -m -- turret train"

Size = Literal["events", "items", "requests"]
Fits = Callable[[PlanRequest], bool]


@dataclass(frozen=True)
class Limit:
    """One machine holds `size` up to `most`, the others as given; None if no size exceeds it.

    `remedy` names the alternatives beyond. `engine` is the name in `Figures.engines` of the engine that
    removes the limit. `applies` is False for a limit of a part that the plan does not have.
    """

    size: Size
    most: float | None
    given: float
    reason: str
    remedy: str
    engine: str | None = None
    applies: bool = True

    @property
    def is_exceeded(self) -> bool:
        """Whether one machine does not hold the size that is planned for."""
        return self.applies and self.most is not None and self.given > self.most


def largest_size(request: PlanRequest, size: Size, fits: Fits) -> float | None:
    """The largest value of one size that fits, the others as given; None if all fit, 0 if none does.

    `fits` must not turn true again for larger values.
    """
    if fits(_with(request, size, _MOST)):
        return None
    low, high = 1.0, _MOST
    if not fits(_with(request, size, low)):
        return 0.0
    for _ in range(_STEPS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if fits(_with(request, size, middle)) else (low, middle)
    return low


def _with(request: PlanRequest, size: Size, value: float) -> PlanRequest:
    """With more events, users have more each; with fewer events than users, users are as many."""
    if size == "events":
        return replace(request, events=value, users=min(request.users, value))
    return replace(request, items=value) if size == "items" else replace(request, requests=value)


def _model_memory(request: PlanRequest, figures: Figures) -> float:
    return max(part(request, figures).most_memory for part in (plan_training, plan_index))


def limits(request: PlanRequest, figures: Figures) -> list[Limit]:
    """One limit for each engine, in the order of the plan's parts."""
    machine = request.machine

    def limit(
        size: Size, fits: Fits, reason: str, remedy: str, engine: str | None = None, applies: bool = True
    ) -> Limit:
        given: float = getattr(request, size)
        measured = engine if engine in figures.engines else None
        return Limit(size, largest_size(request, size, fits), given, reason, remedy, measured, applies)

    return [
        limit(
            "events",
            lambda one: plan_preparation(one, figures).most_disk <= machine.disk,
            "preparing them fills the disk",
            _preparation_remedy(figures),
            "spark",
        ),
        limit(
            "items",
            lambda one: _model_memory(one, figures) <= machine.memory,
            "training or export fills the memory",
            "more memory, or a smaller dimension",
            "torchrun",
        ),
        limit(
            "events",
            lambda one: training_seconds(one, figures).value <= 3600 * request.hours,
            f"training takes {request.hours:g} hours",
            _slow_training_remedy(figures),
        ),
        limit(
            "items",
            lambda one: activation_memory(one, figures, machine.cores).value <= machine.memory,
            "an activation fills the memory of the service",
            _retrieval_remedy(figures),
            "retrieval",
        ),
        limit(
            "requests",
            lambda one: capacity(one, figures).machines == 1,
            f"all cores are busy for {100 * BUSY:.0f} % of the time",
            "replicas of the service behind a proxy, with the histories in a Redis",
        ),
        limit(
            "events",
            lambda one: figures.at("histories.redis.memory", one.sizes()).value <= machine.memory,
            "the histories fill the memory of one Redis",
            "a Redis Cluster; SQLite, on one machine, holds them on its disk",
            applies=capacity(request, figures).machines > 1,
        ),
    ]


def _preparation_remedy(figures: Figures) -> str:
    """For a log that does not fit the disk."""
    machine = "a larger disk"
    if "spark" not in figures.engines:
        return machine
    return f"{machine}, or Spark: `turret data prepare --engine spark://HOST:7077`"


def _slow_training_remedy(figures: Figures) -> str:
    """For a training that takes too long."""
    less = "warm starts (`turret retrain`), fewer epochs, or a GPU"
    measured = figures.engines.get("torchrun")
    if measured is None:
        return less
    gain = f"two were {measured['speedup_2_over_1']:.1f} times as fast as one"
    return f"{less}; or several processes, `{TORCHRUN}`: {gain}"


def _retrieval_remedy(figures: Figures) -> str:
    """For a catalog whose vectors do not fit the memory of the service."""
    smaller = "more memory, or a smaller dimension"
    if "retrieval" not in figures.engines:
        return smaller
    engine = "a vector engine: `turret publish --engine milvus://HOST:19530` or `redis://HOST:6379`"
    taken = figures.engines["retrieval"].get("bytes_an_item")
    if taken is None:
        return f"{smaller}, or {engine}"
    return f"{smaller}, or {engine}, which took {max(taken.values()):,.0f} bytes for an item of 64 numbers"
