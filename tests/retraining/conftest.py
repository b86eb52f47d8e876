"""A shop with a live version, and a store with the events of the days after its training."""

import csv
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.data.synthetic.synthesis import SyntheticConfig, synthesise
from turret.history.loading import load_histories
from turret.retraining.settings import RetrainSettings
from turret.service.settings import read_settings
from turret.training.config.experiment import load_experiment
from turret.training.export.export import export
from turret.training.run import Run
from turret.training.trainer import train

TINY = ("training.epochs=1", "training.batch_size=128", "tower.dimension=8", "training.seed=1")
Shop = Callable[..., RetrainSettings]


def split_log(raw: Path, folder: Path) -> None:
    """Write the oldest three quarters of the events to `early`, the others to `late`."""
    with (raw / "events.csv").open(encoding="utf-8", newline="") as file:
        head, *rows = list(csv.reader(file))
    cut = len(rows) * 3 // 4
    for name, part in (("early", rows[:cut]), ("late", rows[cut:])):
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([head, *part])


def train_first(data: PreparedData, folder: Path) -> None:
    run = Run(
        folder / "run", load_experiment("demo", [*TINY, "training.epochs=6"]), data.folder, data.fingerprint
    )
    train(run, data, report=lambda line: None)
    run.evaluate(data, "test")
    export(run, data, folder / "bundles", "first")


@pytest.fixture(scope="session")
def trained_shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`prepared`, `bundles` with the current version `first`, and the events after it in `late.csv`."""
    folder = tmp_path_factory.mktemp("shop")
    config = SyntheticConfig(users=150, items=120, events_per_user=12, shortest_history=5, longest_history=30)
    synthesise(config, folder / "raw")
    split_log(folder / "raw", folder)
    prepare(PrepareConfig(source=folder / "early.csv"), folder / "prepared")
    train_first(PreparedData.open(folder / "prepared"), folder)
    store_events(folder, folder / "late.csv")
    return folder


def store_events(folder: Path, log: Path) -> None:
    """Put the events of a log into the store of the shop in `folder`."""
    prepare(PrepareConfig(source=log), folder / "stored", overwrite=True)
    settings = read_settings(store=f"sqlite:///{folder}/history.sqlite")
    load_histories(PreparedData.open(folder / "stored"), settings)


@pytest.fixture
def shop(trained_shop: Path, tmp_path: Path) -> RetrainSettings:
    """The settings of a retraining in a copy of the shop; small changes of the metric are accepted."""
    folder = tmp_path / "shop"
    shutil.copytree(trained_shop, folder)
    return RetrainSettings(
        data=folder / "prepared",
        bundles=folder / "bundles",
        work=folder / "retrain",
        store=f"sqlite:///{folder}/history.sqlite",
        overrides=TINY[:2],
        margin=1.0,
    )


@pytest.fixture
def without_store(shop: RetrainSettings) -> RetrainSettings:
    """The same shop with a store in which there is nothing."""
    return replace(shop, store=f"sqlite:///{shop.work.parent}/empty.sqlite")
