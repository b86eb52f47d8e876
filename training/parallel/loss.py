"""The loss of a step on several processes, with gradients summed by DistributedDataParallel."""

from dataclasses import replace

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from turret.tower.towers.model import TwoTowers
from turret.training.batches.batches import Batch
from turret.training.distributed.processes import Processes
from turret.training.distributed.world import World
from turret.training.model_loss import model_loss
from turret.training.objectives.contract import Objective, StepLoss
from turret.training.parallel.refusals import check_objective
from turret.training.parallel.tables import split_weights


class _Step(nn.Module):
    """A model and its objective, of which DDP needs one forward pass."""

    def __init__(self, world: Processes, objective: Objective, model: TwoTowers) -> None:
        super().__init__()
        self.world, self.objective, self.model = world, objective, model

    def forward(self, batch: Batch, random: np.random.Generator) -> StepLoss:
        return model_loss(self.objective, self.model, batch, random, self.world)


class ParallelLoss:
    """Computes this process's part of the loss of a batch: the parts of all processes sum to the loss.

    Each part is the mean over its own examples, times its share of the weight of all. Gradients of replicated
    parameters are summed, not averaged, so that they are those of the whole batch. Rows of split tables get
    their gradients by the exchange that fetched them, and DDP leaves them alone.
    """

    def __init__(
        self, world: Processes, objective: Objective, model: TwoTowers, split: list[nn.Parameter]
    ) -> None:
        self.world = world
        self.step: nn.Module = _Step(world, objective, model)
        ids = {id(weight) for weight in split}
        named = dict(self.step.named_parameters())
        ignored = [name for name, parameter in named.items() if id(parameter) in ids]
        if len(ignored) < len(named):
            # torch has no other way to leave parameters to their own exchange.
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(self.step, ignored)  # type: ignore[no-untyped-call]
            parallel = DistributedDataParallel(self.step, forward_sync_buffers=False)
            parallel.register_comm_hook(world, _summed)
            self.step = parallel

    @classmethod
    def of(cls, world: World, objective: Objective, model: TwoTowers) -> "ParallelLoss":
        """The loss on several processes. Raises TrainingError for an objective that parts can't compute."""
        assert isinstance(world, Processes)
        check_objective(objective, world.size)
        return cls(world, objective, model, split_weights(model))

    def __call__(self, batch: Batch, random: np.random.Generator) -> StepLoss:
        """The part of the loss; candidates are drawn with `random`, which differs between processes."""
        out: StepLoss = self.step(batch, random)
        assert out.weight is not None, "an objective that merges has a weight"
        own = float(out.weight)
        (total,) = self.world.sums([own])
        masked = torch.zeros_like(out.masked) if batch.is_padding else out.masked
        return replace(out, loss=out.loss * (own / (total or 1.0)), masked=masked)


def _summed(world: Processes, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """Sum a bucket of gradients over all processes."""
    gradients = bucket.buffer()
    world.count_sum("gradients", gradients.nbytes)
    work = dist.all_reduce(gradients, async_op=True)
    summed: torch.futures.Future[Tensor] = work.get_future().then(lambda done: done.value()[0])
    return summed
