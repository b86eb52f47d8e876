"""The training loop: steps, validations and checkpoints."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.data.prepared import PreparedData
from turret.data.progress import progress
from turret.tower.layers.packed import PackedHistories
from turret.tower.repeats import Slot
from turret.tower.slots import slot_metric
from turret.training.batches.batches import Batch, TrainingBatches, prefetched
from turret.training.checkpoint import (
    Progress,
    all_parameters,
    load_checkpoint,
    save_checkpoint,
    save_tensors,
)
from turret.training.config.experiment import TrainingConfig, named_settings
from turret.training.config.metric import AUC
from turret.training.distributed import WORLD, backward, check_parts
from turret.training.errors import DivergenceError, TrainingError
from turret.training.evaluation.evaluation import (
    Relevant,
    in_slot,
    metric_of,
    validated_items,
)
from turret.training.evaluation.ranking import tower_scores
from turret.training.loop.optimiser import Optimiser, lazy_tables, learning_rate_factor
from turret.training.loop.teachers import Teachers
from turret.training.model_loss import build_objective, model_loss
from turret.training.objectives.contract import Lesson
from turret.training.randomness import seed_torch, stream
from turret.training.records import DEFAULT, Recorder
from turret.training.run import (
    CHECKPOINT,
    MODEL,
    Run,
    build_model,
)
from turret.training.used_items import Targets, item_weights, wants_repeats

Report = Callable[[str], None]
# It is called after each evaluation with the epoch and the value; True ends the run.
Observe = Callable[[int, float], bool]


def pick_device(name: str) -> torch.device:
    """The device of `training.device`; `auto` prefers CUDA. Raises TrainingError where CUDA is missing."""
    if name == "cuda" and not torch.cuda.is_available():
        raise TrainingError("training.device = 'cuda': this machine has no CUDA device; use 'auto' or 'cpu'.")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def matmul_dtype(device: torch.device, precision: str) -> torch.dtype | None:
    """The type of products: bfloat16 where the device multiplies it, 4 to 8 times as fast; else None."""
    if precision == "auto":
        # Without instructions for bfloat16 products torch is slower in bfloat16.
        known = torch.cpu.get_capabilities()
        has_products = any(known.get(name, False) for name in ("amx_bf16", "avx512_bf16"))
        return torch.bfloat16 if device.type == "cuda" or has_products else None
    return torch.bfloat16 if precision == "bfloat16" else None


class Trainer:
    """Trains one run from its first step or its checkpoint."""

    def __init__(
        self,
        run: Run,
        data: PreparedData,
        report: Report = print,
        observe: Observe | None = None,
    ) -> None:
        experiment = run.experiment
        self.run, self.data, self.observe = run, data, observe
        self.world = world = WORLD.get()
        self.report = report if world.leads else lambda line: None  # process 0 reports for all
        self.settings: TrainingConfig = experiment.training
        self.device = pick_device(self.settings.device)
        products = matmul_dtype(self.device, self.settings.precision)
        targets = Targets.of(experiment, data)
        self.model = build_model(experiment, data).to(self.device)
        self.model.chunk_size = self.settings.chunk_size
        self.batches = TrainingBatches.of(experiment, data, targets=targets)
        self.objective = build_objective(experiment, data, self.device, targets).to(self.device)
        self.objective.products = products
        lazy, line = lazy_tables(self.model, self.settings, self.objective.sampler is not None)
        if line:
            self.report(line)
        self.optimiser = Optimiser(
            [self.model, self.objective], lazy, self.settings.learning_rate, self.settings.weight_decay
        )
        self.lesson: Callable[[PackedHistories], Lesson] | None = None
        if self.settings.teacher:
            self.lesson = Teachers.open(run, data, self.device, self.objective.mask_seen).lesson
        starts, ends = data.bounds("validation")
        has_validation = bool((data.first_targets(starts, ends) < ends).any())
        self.users = validated_items(data, self.settings) if has_validation else None
        self.slot: Slot = "all"
        self.validated = self.users
        if self.users and self.settings.metric != AUC and wants_repeats(experiment, data):
            # A repeat term ranks the used items, so validations rank the new ones if some target is new.
            new = in_slot(data, self.users, "validation", "new")
            if new.counts.any():
                self.slot, self.validated = "new", new.take(np.flatnonzero(new.counts))
        if world.size > 1:
            check_parts(self.objective, world.size)
            world.share(self.model)
            world.share(self.objective)
            world.wait()  # no process replaces an earlier run before all have checked theirs
        self.best, self.progress = dict[str, Tensor](), Progress()

    @cached_property
    def popularity(self) -> NDArray[np.float64]:
        """The `item_weights`, float64 [N], which rank items for users without a history."""
        return item_weights(self.run.experiment, self.data)

    @property
    def metric(self) -> str:
        """The metric of validations, in words."""
        return slot_metric(self.slot, self.settings.metric)

    def report_first(self, line: str) -> None:
        """Report and validate a model that can rank already, the best one until an epoch is better."""
        if self.validated is not None:
            line += f" Validation {self.metric} {self._validate(self.validated):.4f}"
        self.report(line)

    def train(self, loggers: Sequence[str] = DEFAULT, until: int | None = None) -> Progress:
        """Train to the end, or `until` so many epochs; the best model is then in the run's folder."""
        state, settings = self.progress, named_settings(self.run.experiment)
        folder = self.run.folder if self.world.leads else None
        recorder = Recorder(folder, settings, state, list(dict.fromkeys(loggers)), self.report)
        try:
            if state.step == 0 and state.validated:
                recorder.record({f"validation/{self.metric}": state.validated[0][1]})
            while not state.finished and (until is None or state.epoch < until):
                speed = self._epoch(recorder)
                state.seconds = recorder.seconds
                self._end_epoch(recorder, speed)
                self.save()
        finally:
            recorder.close()
        return state

    def seconds_an_epoch(self, steps: int) -> float:
        """Estimate the time of an epoch without its evaluation by its first steps, which change the model."""
        seconds = []
        for batch in islice(self._begin_epoch(), steps):
            began = time.monotonic()
            self.step(batch)
            seconds.append(time.monotonic() - began)
        # The first steps compile kernels and fill caches, and other work on the machine only adds to a step.
        return min(seconds) * self.batches.steps_per_epoch

    def _begin_epoch(self) -> Iterator[Batch]:
        """The remaining batches of the epoch."""
        state = self.progress
        sampler = self.objective.sampler
        if sampler and sampler.holds_vectors and not state.step_in_epoch:
            rows = torch.arange(len(self.data.item_ids), device=self.device)
            sampler.refresh(self.model.current_vectors(rows))
        self.model.train()
        order = stream(self.settings.seed, "order", state.epoch)
        share = (self.world.rank, self.world.size)
        batches = self.batches.epoch(order, state.step_in_epoch, share)
        return batches if self.device.type == "cpu" else prefetched(batches, self.device)

    def _epoch(self, recorder: Recorder) -> float:
        """Make the remaining steps of an epoch, and return the number of examples per second."""
        begun, examples = recorder.seconds, self.progress.examples
        state, settings = self.progress, self.settings
        label = f"epoch {state.epoch + 1}/{settings.epochs}"
        batches = self._begin_epoch()
        with progress(label, self.batches.steps_per_epoch) as advance:
            advance(state.step_in_epoch)
            for batch in batches:
                loss = self.step(batch)
                if state.step % 50 == 1:
                    recorder.record({"loss/train": loss, "learning_rate": self.optimiser.learning_rate})
                if settings.checkpoint_every and state.step % settings.checkpoint_every == 0:
                    state.seconds = recorder.seconds
                    self.save()
                advance(1)
        return (state.examples - examples) / max(recorder.seconds - begun, 1e-9)

    def step(self, batch: Batch) -> float:
        """Make one optimiser step and return the loss."""
        state, settings, world = self.progress, self.settings, self.world
        seed_torch(settings.seed, "dropout", state.step, world.rank)
        random = stream(settings.seed, "draw", state.step, world.rank)
        # On the CPU the products of the towers are no faster in bfloat16, and products of scores have their
        # own type (`objective.products`).
        is_mixed = self.device.type != "cpu" and settings.precision != "float32"
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=is_mixed):
            out = model_loss(self.objective, self.model, batch, random, self.lesson)
        self.model.zero_grad()
        self.objective.zero_grad()
        if world.size > 1:
            loss, examples, masked = backward(world, out, batch.size, self.optimiser.parameters)
        else:
            torch.autograd.backward(out.loss)
            loss, examples, masked = float(out.loss.detach()), batch.size, int(out.masked)
        if settings.gradient_clip:
            self.optimiser.clip(settings.gradient_clip)
        if loss != loss or abs(loss) == float("inf"):
            raise DivergenceError(
                f"{self.run.folder}: the loss is {loss} at step {state.step}; lower training.learning_rate "
                f"({settings.learning_rate}) or raise tower.scoring.temperature."
            )
        planned = settings.epochs * self.batches.steps_per_epoch
        factor = learning_rate_factor(state.step, planned, settings.warmup, settings.decay)
        self.optimiser.step(settings.learning_rate * factor)
        if self.objective.sampler:
            self.objective.sampler.update(self.model.current_vectors)
        state.step += 1
        state.step_in_epoch += 1
        state.loss_sum += loss * examples
        state.examples += examples
        state.masked += masked
        return loss

    def _end_epoch(self, recorder: Recorder, speed: float) -> None:
        state, settings = self.progress, self.settings
        state.epoch += 1
        state.step_in_epoch = 0
        mean, masked = state.loss_sum / state.examples, state.masked / state.examples
        line = f"epoch {state.epoch}/{settings.epochs}: loss {mean:.4f}, {masked:.2f} masked an example"
        figures = {"loss/epoch": mean, "candidates/masked_per_example": masked}
        figures["examples_per_second"] = round(speed, 1)
        state.loss_sum, state.examples, state.masked = 0.0, 0, 0
        last, stopped = state.epoch == settings.epochs, False
        if self.validated is None:
            self._save_best()
        else:
            value = self._validate(self.validated)
            figures[f"validation/{self.metric}"] = value
            stopped = self.observe is not None and self.observe(state.epoch, value)
            line += f", validation {self.metric} {value:.4f}" + (" (best)" if not state.stale else "")
        recorder.record(figures)
        state.finished = self.world.agreed(last or stopped or state.stale >= settings.patience)
        self.report(f"{line}, {state.seconds:.0f} s")

    def validation_metric(self, users: Relevant) -> float:
        """The mean of `training.metric` over `users`; several processes share the work and get its value."""
        world = self.world
        local_users = users.take(np.arange(world.rank, len(users.users), world.size))
        experiment, count = self.run.experiment, len(local_users.users)
        # A loss that does not rank by an inner product ranks by the objective's scores.
        scores = None if experiment.objective.loss.servable else self.objective.scores
        mean = 0.0
        if count:
            scores_of = tower_scores(self.model, self.data, "validation", self.popularity, scores)
            mean = metric_of(
                scores_of, self.data, local_users, self.settings.metric, experiment.evaluation, self.slot
            )
        if world.size == 1:
            return mean
        total, _ = world.sums([mean * count, count])
        return total / len(users.users)

    def _validate(self, users: Relevant) -> float:
        state = self.progress
        value = self.validation_metric(users)
        state.validated.append([state.epoch, value])
        if state.best is None or value > state.best:
            state.best, state.best_epoch, state.stale = value, state.epoch, 0
            self._save_best()
        else:
            state.stale += 1
        return value

    def _save_best(self) -> None:
        self.best = all_parameters(self.model, self.objective)
        if self.world.leads:
            save_tensors(self.run.folder / MODEL, self.best)

    def save(self) -> None:
        """Write a checkpoint of the current state."""
        sampler = self.objective.sampler
        if self.world.leads:
            save_checkpoint(
                self.run.folder / CHECKPOINT,
                self.progress,
                model=self.model.state_dict(),
                objective=self.objective.state_dict(),
                optimiser=self.optimiser.tensors(),
                sampler=sampler.state() if sampler else {},
                best=self.best,
            )

    def resume(self) -> None:
        """Restore the run's checkpoint. Raises TrainingError when it is missing or invalid."""
        path = self.run.folder / CHECKPOINT
        progress, groups = load_checkpoint(path)
        try:
            self.model.load_state_dict(groups["model"])
            self.objective.load_state_dict(groups["objective"])
            self.optimiser.restore(groups["optimiser"])
            if self.objective.sampler:
                self.objective.sampler.restore(groups["sampler"])
        except (KeyError, ValueError, RuntimeError) as error:
            raise TrainingError(f"{path}: it belongs to another model ({error}); train again.") from None
        self.best, self.progress = groups["best"], progress
        if self.best and self.world.leads:
            save_tensors(self.run.folder / MODEL, self.best)
        self.report(f"Resuming at step {progress.step}.")
