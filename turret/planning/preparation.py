"""The plan of `turret data prepare`: sorted on disk, memory holds the ids."""

from turret.planning.figures import Figures
from turret.planning.parts import Part
from turret.planning.request import PlanRequest


def plan_preparation(request: PlanRequest, figures: Figures) -> Part:
    """Memory and time of preparing the whole log, and the disk of the prepared folder."""
    sizes = request.sizes()
    return Part(
        "preparation",
        memory=figures.at("preparation.memory", sizes),
        disk=figures.at("preparation.disk", sizes),
        seconds=figures.at("preparation.seconds", sizes),
        passing_disk=figures.at("preparation.passing_disk", sizes),
    )
