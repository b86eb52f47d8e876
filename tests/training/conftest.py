"""Prepared data and runs that the tests of this folder share."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file

from turret.data.configuration import load_configuration
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.data.synthetic.synthesis import SyntheticConfig, synthesise
from turret.tower.towers.model import TwoTowers
from turret.training.batches.batches import Batch, TrainingBatches
from turret.training.config.experiment import ExperimentConfig, load_experiment
from turret.training.loop.train import train
from turret.training.loop.trainer import Trainer
from turret.training.randomness import stream
from turret.training.run import CHECKPOINT, Run, build_model

QUICK = ["training.batch_size=256", "training.device=cpu", "tower.dimension=8"]


def prepared(folder: Path, events: Sequence[Mapping[str, object]] | str, **settings: object) -> PreparedData:
    """Events as rows or as the text of a CSV, prepared in `folder`; `__` in a setting is a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    text = events if isinstance(events, str) else pl.DataFrame(events).write_csv()
    (folder / "events.csv").write_text(text)
    given = {
        "source": folder / "events.csv",
        **{key.replace("__", "."): one for key, one in settings.items()},
    }
    prepare(load_configuration(PrepareConfig, None, given), folder / "prepared")
    return PreparedData.open(folder / "prepared")


def with_events(data: PreparedData, held_out: bool) -> PreparedData:
    """The same data in which all events of the training part, or all held out, are of other items."""
    starts, ends = data.bounds("train")
    training = np.zeros(len(data.event_items), dtype=bool)
    for start, end in zip(starts, ends, strict=True):
        training[start:end] = True
    mirrored = len(data.item_ids) - 1 - np.asarray(data.event_items)
    return replace(data, event_items=np.where(training != held_out, mirrored, data.event_items))


def trained(folder: Path, data: PreparedData, experiment: ExperimentConfig) -> tuple[Run, list[str]]:
    """A run that is trained to its end, and the lines of its training."""
    run, said = Run(folder, experiment, data.folder, data.fingerprint), list[str]()
    train(run, data, report=said.append)
    return run, said


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """A small synthetic shop: 300 users, 200 items, last item out. Nobody may write to it."""
    folder = tmp_path_factory.mktemp("shop")
    config = SyntheticConfig(users=300, items=200, events_per_user=15, shortest_history=3, longest_history=40)
    synthesise(config, folder / "raw")
    prepare(PrepareConfig(source=folder / "raw"), folder / "prepared")
    return PreparedData.open(folder / "prepared")


@pytest.fixture(scope="session")
def handmade(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """Five users of 1 to 7 events in file order; small enough to work out by hand."""
    histories = {"a": "pqrstpq", "b": "qr", "c": "p", "d": "stpqr", "e": "rsq"}
    rows = [{"user": user, "item": item} for user, items in histories.items() for item in items]
    return prepared(tmp_path_factory.mktemp("handmade"), rows, columns__in_file_order=True)


@pytest.fixture(scope="session")
def loyal(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """60 users of 14 events and 30 items; four times of ten a user takes the last item again."""
    random, rows = np.random.default_rng(3), []
    for user in range(60):
        item = 0
        for time in range(14):
            item = item if time and random.random() < 0.4 else int(random.integers(30))
            rows.append({"user": f"u{user}", "item": f"i{item}", "time": 1_700_000_000 + 86_400 * time})
    return prepared(tmp_path_factory.mktemp("loyal"), rows)


@pytest.fixture(scope="session")
def batch(shop: PreparedData) -> Batch:
    """The first batch of about 64 examples of the shop. Nobody may write to it."""
    return next(TrainingBatches(shop, 64, 50, 64).epoch(stream(0, "order", 0)))


@pytest.fixture
def towers(shop: PreparedData) -> TwoTowers:
    """Fresh towers of the default experiment for the shop, without dropout."""
    return build_model(ExperimentConfig(), shop).eval()


@pytest.fixture(scope="session")
def evaluated(shop: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of two epochs on the shop, evaluated beside two baselines. Nobody may write to it."""
    folder = tmp_path_factory.mktemp("evaluated") / "run"
    run, _ = trained(folder, shop, load_experiment("youtubednn", [*QUICK, "training.epochs=2"]))
    run.evaluate(shop, "test", ["co_occurrence"])
    return run


@dataclass(frozen=True)
class Grown:
    """A shop on one day and on a later one: some items are gone by then, and others have come."""

    before: PreparedData
    after: PreparedData

    def rows(self) -> tuple[list[int], list[int]]:
        """The rows of the items that are in both, before and after."""
        ids = set(self.before.item_ids.ids(range(len(self.before.item_ids))))
        kept = sorted(ids & set(self.after.item_ids.ids(range(len(self.after.item_ids)))))
        before, _ = self.before.item_ids.known_rows(kept)
        after, _ = self.after.item_ids.known_rows(kept)
        return before.tolist(), after.tolist()


@pytest.fixture(scope="session")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Grown:
    """A synthetic shop's first two thirds, and its last two; users have an age, which is a number."""
    folder = tmp_path_factory.mktemp("grown")
    config = SyntheticConfig(users=300, items=200, events_per_user=15, shortest_history=3, longest_history=40)
    synthesise(config, folder / "raw")
    events = pl.read_csv(folder / "raw" / "events.csv")
    users = pl.read_csv(folder / "raw" / "users.csv")
    users = users.with_columns(age=20 + pl.int_range(pl.len()) // 7)
    users.drop("age_group").write_csv(folder / "raw" / "users.csv")
    first, last = (events["timestamp"].quantile(share) for share in (1 / 3, 2 / 3))
    is_sold_out = pl.col("item_id") < "i0012"
    parts = {"before": pl.col("timestamp") < last, "after": (pl.col("timestamp") >= first) & ~is_sold_out}
    for name, wanted in parts.items():
        events.filter(wanted).write_csv(folder / "raw" / "events.csv")
        features = {"category": ["country"], "number": ["age"]}
        prepare(
            PrepareConfig.model_validate({"source": folder / "raw", "user_features": features}), folder / name
        )
    return Grown(*(PreparedData.open(folder / name) for name in parts))


def train_and_keep(whole: Run, data: PreparedData, step: int, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Train a run; the other one that is returned has the checkpoint of this step, and no more."""
    cut, save = replace(whole, folder=whole.folder.parent / "cut"), Trainer.save

    def save_and_keep(trainer: Trainer) -> None:
        save(trainer)
        if trainer.progress.step == step:
            cut.write()
            shutil.copy(whole.folder / CHECKPOINT, cut.folder / CHECKPOINT)

    monkeypatch.setattr(Trainer, "save", save_and_keep)
    train(whole, data, report=lambda _: None)
    return cut


def check_resumed(cut: Run, whole: Run, data: PreparedData) -> None:
    """Assert that a run that is resumed ends bit for bit as the whole one has ended."""
    train(Run.read(cut.folder), data, resume=True, report=lambda _: None)
    expected, resumed = (load_file(run.folder / CHECKPOINT) for run in (whole, cut))
    assert all(torch.equal(resumed[name], tensor) for name, tensor in expected.items())
