"""Trainings: resumed, repeated, stopped and refused; streams, rates and evaluations; the optimiser."""

import math
import re
import shutil
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.training.conftest import check_resumed, train_and_keep
from turret.data.prepared import PreparedData
from turret.training.batches.batches import Batch, TrainingBatches
from turret.training.config.experiment import ExperimentConfig, load_experiment, with_settings
from turret.training.errors import DivergenceError, TrainingError
from turret.training.loop import trainer as module
from turret.training.loop.optimiser import Optimiser, RowAdam
from turret.training.loop.teachers import refusal
from turret.training.loop.train import train
from turret.training.loop.trainer import Trainer
from turret.training.model_loss import model_loss
from turret.training.objectives.contract import StepLoss
from turret.training.randomness import seed_torch, stream
from turret.training.run import CHECKPOINT, MODEL, Run
from turret.training.samplers.adaptive.dense import DenseSampler

FEW = {"loss": "sampled_softmax", "sampler": {"kind": "uniform", "negatives": 8}}


def run_of(
    folder: Path, shop: PreparedData, objective: dict[str, Any] | None = None, **training: object
) -> Run:
    """A run of two quick epochs, not yet begun."""
    settings = {"training": {"epochs": 2, "batch_size": 256, "device": "cpu", **training}}
    sections = settings if objective is None else {**settings, "objective": objective}
    return Run(folder, ExperimentConfig.model_validate(sections), shop.folder, shop.fingerprint)


def trained(run: Run, shop: PreparedData) -> list[str]:
    lines: list[str] = []
    train(run, shop, report=lines.append)
    return lines


@pytest.fixture(scope="module")
def finished(shop: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of one epoch. Nobody may write to it."""
    run = run_of(tmp_path_factory.mktemp("finished") / "run", shop, epochs=1)
    trained(run, shop)
    return run


@pytest.fixture
def own(finished: Run, tmp_path: Path) -> Run:
    """The same run in a folder that may be written to."""
    return replace(finished, folder=Path(shutil.copytree(finished.folder, tmp_path / "run")))


STREAMING = {"loss": "sampled_softmax_corrected", "sampler": {"kind": "in_batch", "frequencies": "streaming"}}


@pytest.mark.parametrize(
    "sampler",
    [
        {"kind": "quadratic", "negatives": 16, "refresh_every": 11},
        {"kind": "adaptive_ngram", "publish_every": 3},
        {
            "kind": "mixed",
            "parts": [
                {"kind": "in_batch", "frequencies": "streaming"},
                {"kind": "cross_batch", "batches": 3, "frequencies": "smoothed"},
                {"kind": "mined", "negatives": 16, "refresh_every": 11},
            ],
        },
    ],
    ids=lambda sampler: str(sampler["kind"]),
)
def test_what_a_sampler_remembers_is_resumed_with(
    shop: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampler: dict[str, object]
) -> None:
    """Resumed from a checkpoint in mid-epoch, a run ends bit for bit as the one that wasn't interrupted.

    The table is updated by row, so its moments are resumed with too.
    """
    monkeypatch.setattr("turret.training.loop.optimiser.LARGE", len(shop.item_ids))
    objective = {"loss": "sampled_softmax", "sampler": sampler}
    whole = run_of(tmp_path / "whole", shop, objective, checkpoint_every=5)
    cut = train_and_keep(whole, shop, 5, monkeypatch)
    check_resumed(cut, whole, shop)


def losses_of(lines: list[str]) -> list[float]:
    return [float(line.split("loss ")[1].split(",")[0]) for line in lines if ": loss " in line]


def test_the_same_seed_gives_the_same_model_and_another_or_another_precision_does_not(
    shop: PreparedData, finished: Run, tmp_path: Path
) -> None:
    models = [load_file(finished.folder / MODEL)["item.table.weight"]]
    changes: list[dict[str, Any]] = [{}, {"seed": 1}, {"precision": "bfloat16"}, {"precision": "float32"}]
    for number, changed in enumerate(changes):
        run = run_of(tmp_path / str(number), shop, epochs=1, **changed)
        trained(run, shop)
        models.append(load_file(run.folder / MODEL)["item.table.weight"])
    assert torch.equal(models[0], models[1])
    assert not torch.equal(models[0], models[2])
    assert not torch.equal(models[3], models[4])


FULL = {"loss": "full_softmax"}


@pytest.fixture(scope="module")
def teachers(shop: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Two runs, one of wider vectors. Nobody may write to them."""
    folder, runs = tmp_path_factory.mktemp("teachers"), []
    for width in (8, 16):
        run = run_of(folder / f"run{width}", shop, FULL)
        run = replace(run, experiment=with_settings(run.experiment, {"tower.dimension": width}))
        trained(run, shop)
        runs.append(run)
    return runs


def taught_by(folder: Path, shop: PreparedData, *teachers: Run, **training: object) -> Run:
    return run_of(folder, shop, FULL, teacher=[str(run.folder) for run in teachers], **training)


def test_a_run_imitates_the_mean_score_of_its_teachers(
    shop: PreparedData, teachers: list[Run], batch: Batch, tmp_path: Path
) -> None:
    """The label of an example is the softmax of that mean, but for the share of its positive."""
    trainer = Trainer(
        taught_by(tmp_path / "run", shop, *teachers, teacher_weight=0.6, precision="float32"), shop
    )
    trainer.model.eval()
    out = model_loss(trainer.objective, trainer.model, batch, stream(0, "draw", 0), trainer.lesson)
    scores = []
    for model in (trainer.model, *(run.open_model(shop, "validation") for run in teachers)):
        items = model.catalog_vectors()
        users = model.user_vectors(batch.histories, items[batch.histories.rows])
        scores.append(users @ items.T / model.config.scoring.temperature)
    own, *others = scores
    labels = 0.6 * torch.stack(others).mean(dim=0).softmax(dim=1).detach()
    labels[torch.arange(len(labels)), batch.targets] += 0.4
    losses = -(labels * own.log_softmax(dim=1)).sum(dim=1)
    expected = (losses * batch.weights).sum() / batch.weights.sum()
    torch.testing.assert_close(out.loss, expected, rtol=1e-4, atol=1e-5)
    parameters = [*trainer.model.parameters()]
    slopes = [torch.autograd.grad(value, parameters) for value in (out.loss, expected)]
    for ours, theirs in zip(*slopes, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def test_a_step_is_computed_in_mixed_precision(
    shop: PreparedData, teachers: list[Run], tmp_path: Path
) -> None:
    """As on a GPU: towers with a filter under autocast, sums of smoothing and of teachers in float32."""
    taught = with_settings(
        load_experiment("transformer_short", {"tower.dimension": 8}),
        {"training.device": "cpu", "training.precision": "float32", "tower.user.dropout": 0.0},
    )
    student = with_settings(
        taught_by(tmp_path / "run", shop, *teachers).experiment,
        {"objective.loss": {"kind": "full_softmax", "smoothing": 0.1}, "training.precision": "float32"},
    )
    for number, experiment in enumerate((taught, student)):
        run = Run(tmp_path / str(number), experiment, shop.folder, shop.fingerprint)
        trainer = Trainer(run, shop)
        trainer.model.eval()
        steps = next(TrainingBatches.of(experiment, shop).epoch(stream(0, "order", 0)))
        losses = []
        for is_mixed in (False, True):
            with torch.autocast("cpu", torch.bfloat16, enabled=is_mixed):
                out = model_loss(
                    trainer.objective, trainer.model, steps, stream(0, "draw", 0), trainer.lesson
                )
            torch.autograd.backward(out.loss)
            assert out.loss.dtype == torch.float32
            losses.append(float(out.loss.detach()))
        assert losses[1] == pytest.approx(losses[0], rel=0.02)


def test_a_taught_run_is_resumed(
    shop: PreparedData, teachers: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = taught_by(tmp_path / "whole", shop, *teachers, checkpoint_every=5)
    check_resumed(train_and_keep(whole, shop, 5, monkeypatch), whole, shop)


def test_runs_that_can_not_teach_are_refused(
    shop: PreparedData, handmade: PreparedData, teachers: list[Run], tmp_path: Path
) -> None:
    run, base = taught_by(tmp_path / "run", shop, teachers[0]), teachers[0].experiment
    kinds = {
        "was trained on other data; train it": replace(teachers[0], fingerprint="another"),
        "signed inner product": replace(
            teachers[0], experiment=with_settings(base, {"tower.scoring.absolute": True})
        ),
        "has tower.user.kind = 'transformer', which reads other histories; use 'pooled'": replace(
            teachers[0], experiment=with_settings(base, {"tower.user": {"kind": "transformer"}})
        ),
        "has tower.user.history_length = 7, and this run 50; train it": replace(
            teachers[0], experiment=with_settings(base, {"tower.user.history_length": 7})
        ),
        "has training.examples = 'histories', and this run 'sessions'; train it": teachers[0],
        "is the folder of this run": replace(teachers[0], folder=run.folder),
        "is not trained to its end; continue it": replace(teachers[0], folder=tmp_path),
    }
    training = run.experiment.training.model_copy(update={"examples": "sessions"})
    baskets = replace(run, experiment=run.experiment.model_copy(update={"training": training}))
    assert refusal(teachers[0], run) is None
    for words, teacher in kinds.items():
        assert words in (refusal(teacher, baskets if "sessions" in words else run) or "")
    with pytest.raises(TrainingError, match=r"training\.teacher: .*none: there is no run here"):
        Trainer(run_of(tmp_path / "run", shop, FULL, teacher=[str(tmp_path / "none")]), shop)


def test_a_checkpoint_of_another_model_is_refused(shop: PreparedData, own: Run, evaluated: Run) -> None:
    shutil.copy(own.folder / MODEL, own.folder / CHECKPOINT)
    with pytest.raises(TrainingError, match=r"it can't be read .*progress"):
        train(own, shop, resume=True)
    shutil.copy(evaluated.folder / CHECKPOINT, own.folder / CHECKPOINT)
    with pytest.raises(TrainingError, match="another model"):
        train(own, shop, resume=True)


def large_batches(folder: Path, shop: PreparedData, **training: object) -> Run:
    """A run of two epochs of a few steps, without a warm-up."""
    return run_of(folder, shop, FEW, batch_size=700, warmup=0.0, **training)


def test_a_script_under_torchrun_is_refused(
    handmade: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process would train the same run into one folder."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    experiment = ExperimentConfig()
    with pytest.raises(TrainingError, match=r"torchrun has started 2 processes, .*without torchrun"):
        train(Run(tmp_path, experiment, handmade.folder, handmade.fingerprint), handmade)
    assert not list(tmp_path.iterdir())


def validations(lines: list[str]) -> list[str]:
    return [line.split("validation ")[1].split(",")[0] for line in lines if "validation " in line]


def test_validation_settings_are_followed(shop: PreparedData, tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [{}, {"metric": "hr@5"}, {"validation_users": 30}]
    runs = [run_of(tmp_path / str(place), shop, **changed) for place, changed in enumerate(changes)]
    reports = [validations(trained(run, shop)) for run in runs]
    assert [len(report) for report in reports] == [2, 2, 2]
    assert all(value.startswith("hr@5 ") for value in reports[1])
    assert reports[2] != reports[0]


def test_a_run_ends_where_its_observer_says(shop: PreparedData, tmp_path: Path) -> None:
    """It is told of every evaluation; the folder holds the best model, and nothing goes on."""
    seen: list[tuple[int, float]] = []

    def observe(epoch: int, value: float) -> bool:
        seen.append((epoch, value))
        return epoch == 2

    run = run_of(tmp_path / "run", shop, epochs=9)
    progress = train(run, shop, report=lambda _: None, observe=observe)
    assert seen == [(epoch, value) for epoch, value in progress.validated]
    assert (progress.epoch, progress.finished, progress.best) == (2, True, max(value for _, value in seen))
    assert (tmp_path / "run" / MODEL).is_file()
    assert train(run, shop, resume=True, report=lambda _: None, observe=observe) == progress
    assert len(seen) == 2


def test_every_step_and_epoch_has_a_random_stream_of_its_own(
    shop: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbered through the run: the same dropout or candidates in each epoch would be learnt by heart."""
    used: list[tuple[str, int]] = []

    def streaming(seed: int, name: str, number: int, rank: int = 0) -> Any:
        used.append((name, number))
        return stream(seed, name, number, rank)

    def seeding(seed: int, name: str, number: int, rank: int = 0) -> None:
        used.append((name, number))
        seed_torch(seed, name, number, rank)

    monkeypatch.setattr(module, "stream", streaming)
    monkeypatch.setattr(module, "seed_torch", seeding)
    trained(large_batches(tmp_path, shop), shop)
    steps = [number for name, number in used if name == "dropout"]
    assert steps == list(range(len(steps)))
    assert len(steps) > 4
    assert [number for name, number in used if name == "draw"] == steps
    assert [number for name, number in used if name == "order"] == [0, 1]


def test_steps_train_the_towers_in_training_mode_along_one_schedule(
    shop: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after an evaluation; the rate falls by half a cosine over all epochs. The loss is the mean."""
    modes: list[bool] = []
    rates: list[float] = []
    weighed: list[tuple[float, int]] = []
    step = Trainer.step

    def stepping(trainer: Trainer, batch: Batch) -> float:
        modes.append(trainer.model.training)
        loss = step(trainer, batch)
        rates.append(trainer.optimiser.learning_rate)
        weighed.append((loss, len(batch.targets)))
        return loss

    monkeypatch.setattr(Trainer, "step", stepping)
    lines = trained(large_batches(tmp_path, shop, learning_rate=1e-3, decay=0.1), shop)
    assert all(modes)
    count = len(modes)
    curve = [1e-3 * (0.1 + 0.45 * (1.0 + math.cos(math.pi * number / count))) for number in range(count)]
    # An epoch may have a step less than is planned for.
    assert rates == pytest.approx(curve, rel=0.05)
    for epoch, some in enumerate((weighed[: count // 2], weighed[count // 2 :])):
        mean = sum(loss * size for loss, size in some) / sum(size for _, size in some)
        assert losses_of(lines)[epoch] == pytest.approx(mean, abs=1e-4)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_loss_that_is_not_finite_ends_the_run_before_it_reaches_the_towers(
    shop: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    trainer = Trainer(large_batches(tmp_path, shop), shop, report=lambda _: None)
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}

    def diverged(*_: object) -> StepLoss:
        total = torch.stack([parameter.sum() for parameter in trainer.model.parameters()]).sum()
        return StepLoss(total * 0.0 + value, torch.tensor(0))

    monkeypatch.setattr(module, "model_loss", diverged)
    batch = next(trainer.batches.epoch(stream(0, "order", 0)))
    with pytest.raises(DivergenceError, match=r"lower training\.learning_rate"):
        trainer.step(batch)
    assert all(torch.equal(tensor, before[name]) for name, tensor in trainer.model.state_dict().items())


def test_a_run_stops_early_and_keeps_the_best_model(
    shop: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evaluations that are no better, equal ones too, count against a patience of two."""
    values, kept = iter((0.4, 0.5, 0.5, 0.3)), []

    def observe(epoch: int, value: float) -> bool:
        kept.append((run.folder / MODEL).read_bytes())
        return False

    monkeypatch.setattr(module, "metric_of", lambda *_: next(values))
    run, lines = large_batches(tmp_path, shop, epochs=9, patience=2), list[str]()
    progress = train(run, shop, report=lines.append, observe=observe)
    assert (progress.epoch, progress.best_epoch, progress.stale) == (4, 2, 2)
    assert ["(best)" in line for line in lines if "validation " in line] == [True, True, False, False]
    assert kept[0] != kept[1] == kept[3] == (run.folder / MODEL).read_bytes()


SAMPLER = {"loss": "sampled_softmax", "sampler": {"kind": "softmax", "negatives": 16, "refresh_every": 3}}


def current(trainer: Trainer) -> Tensor:
    return trainer.model.current_vectors(torch.arange(trainer.model.item.item_count))


def copied(trainer: Trainer) -> Tensor:
    """The sampler's copy of the item vectors."""
    assert isinstance(trainer.objective.sampler, DenseSampler)
    return trainer.objective.sampler.vectors


def test_a_step_leaves_a_part_of_the_sampler_with_the_vectors_that_follow_it(
    shop: PreparedData, tmp_path: Path
) -> None:
    """A third of the rows in each step, with the vectors after the optimiser's step; the others are old."""
    trainer = Trainer(run_of(tmp_path, shop, SAMPLER, epochs=3, span_length=256), shop, report=lambda _: None)
    first = current(trainer)
    assert trainer.objective.sampler is not None
    trainer.objective.sampler.refresh(first)
    third = -(-len(first) // 3)
    before = first
    for step, batch in enumerate(trainer.batches.epoch(stream(0, "order", 0))):
        trainer.step(batch)
        after, renewed = current(trainer), slice(step * third, (step + 1) * third)
        assert not torch.equal(after[renewed], before[renewed])
        assert torch.equal(copied(trainer)[renewed], after[renewed])
        assert torch.equal(copied(trainer)[(step + 1) * third :], first[(step + 1) * third :])
        before = after
        if step == 2:
            break


@pytest.mark.parametrize("draws", [[[3, 9], [9, 29], [0, 3]], [[5, 5, 1], [1, 5, 1], [2, 2, 2]]])
def test_rows_move_as_by_sparse_adam(draws: list[list[int]]) -> None:
    """Step after step, also where a row comes several times; without the bias correction it would not."""
    torch.manual_seed(0)
    first = nn.Embedding(30, 7, sparse=True)
    mine, other = deepcopy(first), deepcopy(first)
    optimisers = RowAdam(mine.parameters(), lr=0.1), torch.optim.SparseAdam(list(other.parameters()), lr=0.1)
    for rows in draws:
        for embedding, optimiser in zip((mine, other), optimisers, strict=True):
            optimiser.zero_grad()
            embedding(torch.tensor(rows)).pow(2).sum().backward()
            optimiser.step()
    torch.testing.assert_close(mine.weight, other.weight)
    assert not torch.allclose(mine.weight, first.weight)


@pytest.mark.parametrize("by_row", [False, True])
def test_a_clipped_gradient_is_as_long_as_asked_for(by_row: bool) -> None:
    """A short one stays as it is. A row that came twice counts with its sum."""
    torch.manual_seed(0)
    table = nn.Embedding(12, 4)
    model = nn.Sequential(table, nn.Linear(4, 2))
    plain = deepcopy(model)
    optimiser = Optimiser([model], [table] if by_row else [], 0.01, 0.0)
    for one in (model, plain):
        (one(torch.tensor([3, 7, 3])) - 3.0).square().sum().backward()
    wanted = torch.cat([parameter.grad.flatten() for parameter in plain.parameters()])  # type: ignore[union-attr]
    for longest in (1e6, 0.5):
        optimiser.clip(longest)
        grads = [parameter.grad for parameter in model.parameters()]
        found = torch.cat([grad.to_dense().flatten() for grad in grads if grad is not None])
        torch.testing.assert_close(found, wanted * min(1.0, longest / float(wanted.norm())))


def by_row(trainer: Trainer) -> bool:
    return any(isinstance(one, RowAdam) for one in trainer.optimiser.optimisers.values())


@pytest.mark.parametrize(
    ("training", "loss", "line"),
    [
        ({}, "sampled_softmax", r"lazy Adam, only rows of the batch"),
        ({"tables": "dense"}, "sampled_softmax", r"AdamW, .*: training\.tables = 'dense'"),
        ({"weight_decay": 0.1}, "sampled_softmax", r"AdamW, .*: training\.weight_decay = 0\.1 changes"),
        ({}, "full_softmax", r"AdamW, .*: the loss is not sampled"),
    ],
)
def test_a_run_says_how_its_large_tables_are_updated(
    training: dict[str, Any],
    loss: str,
    line: str,
    shop: PreparedData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = run_of(tmp_path, shop, FEW if loss == "sampled_softmax" else {"loss": loss}, **training)
    lines: list[str] = []
    assert not by_row(Trainer(run, shop, lines.append))
    assert lines == []
    monkeypatch.setattr("turret.training.loop.optimiser.LARGE", len(shop.item_ids))
    is_lazy = by_row(Trainer(run, shop, lines.append))
    assert is_lazy == ("lazy" in line)
    assert len(lines) == 1
    assert re.search(f"^The table of {len(shop.item_ids)} rows is updated by {line}", lines[0])


def test_lazy_tables_are_refused_where_all_rows_change(
    shop: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turret.training.loop.optimiser.LARGE", len(shop.item_ids))
    with pytest.raises(
        TrainingError, match=r"training\.tables = 'lazy': training\.weight_decay = 0\.1 .* 'dense'"
    ):
        Trainer(run_of(tmp_path, shop, weight_decay=0.1, tables="lazy"), shop)
    assert by_row(Trainer(run_of(tmp_path, shop, tables="lazy"), shop))
