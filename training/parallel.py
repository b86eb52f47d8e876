"""A step of several processes: the loss of the whole batch, and whether all train the same run."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from turret.tower.towers.model import TwoTowers
from turret.training.batches.batches import Batch
from turret.training.distributed import World, process_count
from turret.training.errors import TrainingError
from turret.training.model_loss import model_loss
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


class _Step(nn.Module):
    """A model and its objective, of which DDP needs one forward pass."""

    def __init__(self, world: World, objective: Objective, model: TwoTowers) -> None:
        super().__init__()
        self.world, self.objective, self.model = world, objective, model

    def forward(self, batch: Batch, random: np.random.Generator) -> StepLoss:
        return model_loss(self.objective, self.model, batch, random, self.world)


class ParallelLoss:
    """Computes this process's part of the loss of a batch: the parts of all processes sum to the loss.

    Each part is the mean over its own examples, times its share of the weight of all. Gradients are summed,
    not averaged, so that they are those of the whole batch; of a table with sparse gradients, which is
    updated by row, the rows of the batch alone are sent.
    """

    def __init__(self, world: World, objective: Objective, model: TwoTowers) -> None:
        """Raises TrainingError for an objective that parts can't compute."""
        check_objective(objective, world.size)
        self.world = world
        self.step: nn.Module = _Step(world, objective, model)
        if any(True for _ in self.step.parameters()):
            parallel = DistributedDataParallel(self.step, forward_sync_buffers=False)
            parallel.register_comm_hook(world, _summed)
            self.step = parallel

    def __call__(self, batch: Batch, random: np.random.Generator) -> StepLoss:
        """The part of the loss; candidates are drawn with `random`, which differs between processes."""
        out: StepLoss = self.step(batch, random)
        assert out.weight is not None, "an objective that merges has a weight"
        own = float(out.weight)
        (total,) = self.world.sums([own])
        masked = torch.zeros_like(out.masked) if batch.is_padding else out.masked
        return replace(out, loss=out.loss * (own / (total or 1.0)), masked=masked)


def _summed(world: World, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """Sum a bucket of gradients, a `GradBucket` of DDP, over all processes."""
    gradients = bucket.buffer()
    if gradients.is_sparse:  # gloo gathers the rows of all processes
        world.count("table rows", gradients._values().nbytes, world.size)
    else:
        world.count("gradients", gradients.nbytes, 2)
    work = dist.all_reduce(gradients, async_op=True)
    summed: torch.futures.Future[Tensor] = work.get_future().then(lambda done: done.value()[0])
    return summed


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
