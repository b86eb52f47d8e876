"""Training steps of a report: timed ones, and ones that age the item vectors of samplers."""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, islice

import torch

from turret.data.prepared import PreparedData
from turret.tower.towers.model import TwoTowers
from turret.training.batches.batches import TrainingBatches
from turret.training.config.experiment import ExperimentConfig, with_settings
from turret.training.model_loss import model_loss
from turret.training.objectives.contract import Objective
from turret.training.randomness import stream
from turret.training.run import Run
from turret.training.samplers.core.contract import Sampler
from turret.training.trainer import Trainer

# B x N scores held at once: 128 MB.
_MOST_SCORES = 2**25


@dataclass(frozen=True)
class Cost:
    """The median `milliseconds` of a step of B examples, measured with `timed_examples` of them."""

    milliseconds: float
    timed_examples: int


def step_cost(
    model: TwoTowers,
    data: PreparedData,
    experiment: ExperimentConfig,
    objective: Objective,
    dense: bool,
    steps: int = 7,
) -> Cost:
    """Time towers forward, draw, scores, loss, backward and the sampler's update, after one of warm-up.

    The time of the optimiser does not depend on the sampler. Where each example is scored against the whole
    catalog (`dense`), fewer examples are timed if B x N scores would not fit, and the time is scaled up.
    """
    whole = experiment.training.batch_size
    most = max(1, _MOST_SCORES // len(data.item_ids)) if dense else whole
    batches = TrainingBatches.of(experiment, data, min(whole, most))
    size = min(batches.batch_size, batches.example_count)
    seed, device = experiment.training.seed, next(model.parameters()).device
    epoch = batches.epoch(stream(seed, "report order", 0))
    first = next(epoch)
    seconds = []
    model.train()
    for step in range(steps + 1):
        # The first batch repeats where an epoch has fewer.
        batch = next(epoch, first).to(device)
        random = stream(seed, "report step", step)
        start = _now(device)
        model.zero_grad()
        torch.autograd.backward(model_loss(objective, model, batch, random).loss)
        if objective.sampler:
            objective.sampler.update(model.current_vectors)
        seconds.append(_now(device) - start)
    model.zero_grad()
    model.eval()
    whole = min(whole, batches.example_count)
    return Cost(1000.0 * statistics.median(seconds[1:]) * whole / size, size)


def _now(device: torch.device) -> float:
    """The time after all queued work of `device` is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def moved_model(run: Run, data: PreparedData, samplers: Mapping[int, Sequence[Sampler]]) -> TwoTowers:
    """Train the model of a run max(samplers) steps further; nothing is stored.

    `samplers[R]` are refreshed R steps before the end, and updated in each step from there on: at the end
    each has item vectors of every age that its `refresh_every` = R allows. The model moves at least as fast
    as in training: the optimiser starts afresh at the run's highest learning rate.
    """
    steady = with_settings(run.experiment, {"training.warmup": 0.0, "training.decay": 1.0})
    trainer = Trainer(replace(run, experiment=steady), data, report=lambda _: None)
    model = trainer.model
    model.load_state_dict(run.open_model(data).state_dict())
    rows, steps = torch.arange(model.item.item_count, device=trainer.device), max(samplers)
    if trainer.objective.sampler:
        trainer.objective.sampler.refresh(model.current_vectors(rows))
    orders = (stream(steady.training.seed, "report order", epoch) for epoch in count(1))
    batches = chain.from_iterable(map(trainer.batches.epoch, orders))
    for step, batch in enumerate(islice(batches, steps)):
        for sampler in samplers.get(steps - step, ()):
            sampler.refresh(model.current_vectors(rows))
        model.train()
        trainer.step(batch.to(trainer.device))
        model.eval()
        for age, followers in samplers.items():
            if age >= steps - step:
                for sampler in followers:
                    sampler.update(model.current_vectors)
    return model
