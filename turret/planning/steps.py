"""The commands of a plan, in the order in which they run."""

from collections.abc import Set

from turret.planning.figures import Figures
from turret.planning.histories import redis_machines
from turret.planning.limits import TORCHRUN
from turret.planning.request import PlanRequest, experiment_defaults
from turret.planning.service import Capacity, capacity

# Beyond so many items a shipped full softmax is slow, as docs/training.md says.
_SAMPLED_FROM = 100_000
_SPARK = " --engine spark://HOST:7077"


def commands(request: PlanRequest, figures: Figures, engines: Set[str | None] = frozenset()) -> list[str]:
    """Shell commands from the log to the service; capitals stand for names of your own.

    `engines` are the names of those that the plan needs: spark, torchrun, retrieval.
    """
    planned = capacity(request, figures)
    index = "index var/bundles/first --kind auto"
    if "retrieval" in engines:
        index = "publish var/bundles/first --engine milvus://HOST:19530"
    return [
        f"turret data prepare LOG --to var/prepared{_SPARK * ('spark' in engines)}",
        _train(request, TORCHRUN if "torchrun" in engines else "turret train"),
        "turret export var/run --bundles var/bundles --version first",
        f"turret {index} --version first-indexed",
        "turret activate first-indexed --bundles var/bundles",
        f"turret history load --data var/prepared --store {_store(request, figures, planned)}",
        f"turret serve --bundles var/bundles --workers {planned.workers} "
        f"--store {_store(request, figures, planned)}",
    ]


def _train(request: PlanRequest, command: str) -> str:
    defaults = experiment_defaults(request.experiment)
    words = [f"{command} --data var/prepared --run var/run", f"--experiment {request.experiment}"]
    for setting, name in (
        ("tower.dimension", "dimension"),
        ("tower.user.history_length", "history"),
        ("training.epochs", "epochs"),
    ):
        value = getattr(request, name)
        if value != defaults[name]:
            words.append(f"--set {setting}={value}")
    if request.experiment == "transformer" and request.items > _SAMPLED_FROM:
        words.append(
            """--set 'objective={loss="sampled_softmax", sampler={kind="uniform", negatives=1024}}'"""
        )
    return " ".join(words)


def _store(request: PlanRequest, figures: Figures, planned: Capacity) -> str:
    if planned.machines == 1:
        return "sqlite:///var/history.sqlite"
    return "redis://HOST:6379/0" if redis_machines(request, figures) == 1 else "redis+cluster://HOST:6379"
