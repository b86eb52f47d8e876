"""The plan of `turret train`: one process, whose memory grows with the item table."""

from turret.planning.amounts import Amount
from turret.planning.figures import Figures
from turret.planning.parts import Part
from turret.planning.request import VALIDATION_USERS, PlanRequest


def plan_training(request: PlanRequest, figures: Figures) -> Part:
    """Memory, disk and time of a training of all epochs on the processors of one machine."""
    sizes, experiment = request.sizes(), request.experiment
    return Part(
        "training",
        memory=figures.at(f"training.{experiment}.memory", sizes),
        disk=figures.at(f"training.{experiment}.disk", sizes),
        seconds=training_seconds(request, figures),
        notes=(f"{request.epochs} epochs of {experiment} at most, with a validation after each",),
    )


def training_seconds(request: PlanRequest, figures: Figures) -> Amount:
    """Seconds of all epochs: every event of a user but the first is an example.

    Each epoch ends with a ranking of the catalog for at most 20,000 users.
    """
    sizes = request.sizes()
    example = figures.at(f"training.{request.experiment}.example_seconds", sizes)
    ranked = figures.at("training.validation_seconds", sizes)
    examples, users = request.events - request.users, min(request.users, VALIDATION_USERS)
    steps = example * (examples / thread_gain(request, figures))
    return (steps + ranked * users) * request.epochs


def thread_gain(request: PlanRequest, figures: Figures) -> float:
    """How many times as many examples/s as one thread: of two at most, as more were not measured."""
    gain = figures.quantities[f"training.{request.experiment}.gain_of_two_threads"].base
    return gain if request.machine.cores > 1 else 1.0
