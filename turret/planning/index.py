"""The plan of `turret export` and `turret index`: a bundle, and its tuned index."""

from turret.planning.amounts import Amount, largest
from turret.planning.figures import Figures
from turret.planning.parts import Part
from turret.planning.request import KEEP, PlanRequest

# Retrainings whose run and bundles stay: the newest, and the live and the previous version if they are older.
RUNS = KEEP + 2
# Of each the bundle with an exact index and the one with a tuned index.
BUNDLES = 2 * RUNS


def plan_index(request: PlanRequest, figures: Figures) -> Part:
    """Memory and time of both commands, one after the other, and the disk of the bundle with its index."""
    sizes = request.sizes()
    return Part(
        "export and index",
        memory=largest([figures.at(f"{command}.memory", sizes) for command in ("export", "index")]),
        disk=bundle_disk(request, figures),
        seconds=figures.at("export.seconds", sizes) + figures.at("index.seconds", sizes),
    )


def bundle_disk(request: PlanRequest, figures: Figures) -> Amount:
    """Bytes of one bundle."""
    return figures.at("bundle.disk", request.sizes())


def plan_versions(request: PlanRequest, figures: Figures) -> Part:
    """The disk of the runs and bundles that `turret retrain` keeps."""
    run = figures.at(f"training.{request.experiment}.disk", request.sizes())
    return Part(
        "versions kept",
        disk=run * RUNS + bundle_disk(request, figures) * BUNDLES,
        notes=(f"runs and bundles of {KEEP} retrainings, and of the live and the previous version",),
    )
