"""The plan of `turret train`: one process, whose memory grows with the item table."""

from turret.planning.amounts import Amount
from turret.planning.figures import Figures
from turret.planning.parts import Part
from turret.planning.request import VALIDATION_USERS, PlanRequest


def plan_training(request: PlanRequest, figures: Figures) -> Part:
    """Memory, disk and time of a training of all epochs on one core."""
    sizes, experiment = request.sizes(), request.experiment
    return Part(
        "training",
        memory=figures.at(f"training.{experiment}.memory", sizes),
        disk=figures.at(f"training.{experiment}.disk", sizes),
        seconds=training_seconds(request, figures),
        notes=(f"{request.epochs} epochs of {experiment} at most, with a validation after each",),
    )


def training_seconds(request: PlanRequest, figures: Figures) -> Amount:
    """Seconds of all epochs on one core: every event of a user but the first is an example.

    Each epoch ends with a ranking of the catalog for at most 20,000 users.
    """
    sizes = request.sizes()
    example = figures.at(f"training.{request.experiment}.example_seconds", sizes)
    ranked = figures.at("training.validation_seconds", sizes)
    examples, users = request.events - request.users, min(request.users, VALIDATION_USERS)
    return (example * examples + ranked * users) * request.epochs
