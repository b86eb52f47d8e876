"""Refusals of objectives that several processes can't train."""

from collections.abc import Sequence

from turret.training.errors import TrainingError
from turret.training.objectives.contract import Objective
from turret.training.samplers.core.contract import Sampler
from turret.training.samplers.union import MixedSampler


def check_objective(objective: Objective, size: int) -> None:
    """Raise TrainingError where the parts of `size` processes don't make one training.

    These are losses that are no mean over single examples, and samplers that learn from their own examples.
    """
    if not objective.merges:
        raise TrainingError(
            f"objective.loss: the loss of {type(objective).__name__} is no mean over single examples, so "
            f"{size} processes can't put it together from parts; train it in one process, or choose another "
            "loss, such as 'sampled_softmax' or 'full_softmax'."
        )
    for sampler in _parts(objective.sampler):
        if sampler.observes_scores or _remembers_its_own(sampler):
            raise TrainingError(
                f"objective.sampler: {type(sampler).__name__} learns from the examples that it sees, and "
                f"each of {size} processes would see others; train it in one process, or choose another "
                "sampler, such as 'uniform' or 'in_batch'."
            )


def _parts(sampler: Sampler | None) -> Sequence[Sampler]:
    if sampler is None:
        return ()
    return sampler.parts if isinstance(sampler, MixedSampler) else (sampler,)


def _remembers_its_own(sampler: Sampler) -> bool:
    """Whether a sampler has a memory that isn't known to be the same in all processes.

    Copies of item vectors are the same in all; samplers that draw from the batch read all parts.
    """
    copies_vectors = sampler.holds_vectors and type(sampler).__module__.startswith("turret.")
    return type(sampler).state is not Sampler.state and not sampler.draws_batch and not copies_vectors
