"""A step of several processes: the loss of the whole batch, and whether all train the same run."""

from collections.abc import Sequence
from hashlib import sha256

import torch
from torch import nn

from turret.training.distributed import World, process_count
from turret.training.errors import TrainingError
from turret.training.objectives.contract import Objective, StepLoss
from turret.training.records.environment import package_version
from turret.training.run import Run
from turret.training.samplers.core.contract import Sampler
from turret.training.samplers.union import MixedSampler


def check_same_run(world: World, run: Run) -> None:
    """Raise TrainingError unless all processes of torchrun train `run`, with one release, data and settings.

    Each machine may have its own: where only the order of the items differs, training would go on, and make
    one vector of two items. A script that does not join the others would train the run once in each process.
    """
    if world.size < process_count():
        raise TrainingError(
            f"torchrun has started {process_count()} processes, and each would train {run.folder} alone; "
            "several processes are for `turret train` (docs/distributed.md), so start this without torchrun."
        )
    parts = {
        "release of turret": package_version("turret") or "",
        "copy of the prepared data": run.fingerprint,
        "experiment": run.experiment.model_dump_json(),
    }
    every = world.gathered(torch.tensor([[_digest(text) for text in parts.values()]]))
    for name, column in zip(parts, every.T, strict=True):
        others = (column != column[0]).nonzero().flatten().tolist()
        if others:
            raise TrainingError(
                f"process {others[0]} of {world.size} has another {name} than process 0; give all machines "
                "the same release, settings and prepared data (a shared folder, or copies of one)."
            )


def _digest(text: str) -> int:
    """63 bits of a hash, as an int64 has."""
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big") >> 1


def backward(
    out: StepLoss, examples: int, parameters: Sequence[nn.Parameter], world: World
) -> tuple[float, int, int]:
    """Compute the gradients of the whole batch; return its loss, examples and masked candidates.

    Each process has the mean over its own examples: they sum it times its weight, and divide by the weight of
    all. Of a table with sparse gradients, which is updated by row, the rows of the batch alone are sent.
    """
    if world.size == 1:
        torch.autograd.backward(out.loss)
        return float(out.loss.detach()), examples, int(out.masked)
    assert out.weight is not None, "an objective that merges has a weight"
    weight, masked = float(out.weight), int(out.masked) if examples else 0
    figures = world.summing([float(out.loss.detach()) * weight, weight, examples, masked])
    torch.autograd.backward(out.loss * weight)
    dense = [one for one in parameters if one.grad is None or not one.grad.is_sparse]
    gradients = [one.grad for one in parameters if one.grad is not None and one.grad.is_sparse]
    if dense:  # one exchange for all
        own = (torch.zeros_like(one) if one.grad is None else one.grad for one in dense)
        together = torch.cat([gradient.flatten() for gradient in own])
        for one, part in zip(dense, torch.split(together, [one.numel() for one in dense]), strict=True):
            one.grad = part.view_as(one)
        gradients.append(together)
    world.add_up(gradients)
    loss, total, count, masked_by_all = figures()
    for gradient in gradients:
        gradient.div_(total or 1.0)
    return loss / (total or 1.0), int(count), int(masked_by_all)


def check_parts(objective: Objective, size: int) -> None:
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
