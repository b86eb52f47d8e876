"""Logs of some lines, a log of tastes with bundles that know them or not, and records of retrainings."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import turret
from tests.conftest import contents, golden_of, plain_ranking
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.retraining.state import DataSize, Retraining
from turret.service.settings import Settings
from turret.service.stores.contract import Event
from turret.service.stores.registry import open_stores
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.config import ScoringConfig
from turret.tower.format.manifest import Manifest

Prepare = Callable[..., PreparedData]
GROUPS, GROUP = 10, 6
DAY = 86_400
START = 1_700_000_000
PublishTaste = Callable[..., None]


def stored(address: str, user: str) -> list[Event]:
    """The events of a user in a store."""

    async def read() -> list[Event]:
        stores = open_stores(Settings(store=address))
        try:
            return (await stores.histories.events(user, 100_000))[1]
        finally:
            await stores.close()

    return asyncio.run(read())


def taste_log(users: int, days: int = 4) -> str:
    """Each user takes an item of one group of items every day, never the same twice."""
    lines = ["user_id,item_id,timestamp"]
    random = np.random.default_rng(1)
    for user in range(users):
        items = random.permutation(GROUP)[:days] + 100 + GROUP * (user % GROUPS)
        lines += [f"{user},{item},{START + day * DAY + user}" for day, item in enumerate(items)]
    return "\n".join(lines) + "\n"


def size(events: int, items: int = 10) -> DataSize:
    return DataSize(fingerprint=f"data-{events}-{items}", events=events, items=items)


def record(run: str, **fields: Any) -> Retraining:
    """A retraining that never was, of an activated version with the name of its run."""
    plain = {"decision": "activated", "status": 0, "message": "", "version": run, "mode": "warm"}
    moment = "2026-05-01T03:00:00.000+00:00"
    moments = {"started": moment, "ended": moment, "seconds": 1.0}
    return Retraining.model_validate({"run": run, **moments, **plain, **fields})


@pytest.fixture(scope="session")
def tastes(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """120 users of 4 events with times; the last event is the test part."""
    folder = tmp_path_factory.mktemp("tastes")
    (folder / "log.csv").write_text(taste_log(120))
    return turret.prepare(folder / "log.csv", folder / "prepared")


def manifest(version: str, data: str, until: str | None = None) -> Manifest:
    """The manifest of a version that was trained on data with this fingerprint, with events until then."""
    return Manifest(
        version=version,
        created="",
        data_until=until,
        dimension=2,
        item_count=2,
        scoring=ScoringConfig(kind="dot", temperature=1.0),
        history_length=5,
        fingerprints={"data": data},
        files={},
    )


def taste_contents(version: str, data: PreparedData, noise: float = 0.1) -> BundleContents:
    """The contents of a bundle that knows the tastes: items of a group are near each other, up to noise."""
    noisy = np.repeat(np.eye(GROUPS), GROUP, axis=0)
    noisy += noise * np.random.default_rng(2).standard_normal(noisy.shape)
    vectors = (noisy / np.linalg.norm(noisy, axis=1, keepdims=True)).astype(np.float32)
    made = contents(
        version,
        dimension=GROUPS,
        fingerprints={"data": data.fingerprint},
        data_until=data.manifest.time.until,
    )
    golden = golden_of(made.vocabulary, lambda rows: plain_ranking(vectors, rows, 0.5))
    return replace(made, item_vectors=vectors, golden=golden)


@pytest.fixture
def publish_taste(tmp_path: Path, tastes: PreparedData) -> PublishTaste:
    """Publish such a bundle, trained on the data of `tastes`, into `tmp_path / "bundles"`."""

    def make(version: str, noise: float = 0.1) -> None:
        publish(tmp_path / "bundles", taste_contents(version, tastes, noise))

    return make


@pytest.fixture
def prepared(tmp_path: Path) -> Prepare:
    """Prepare a log given as CSV text."""

    def make(text: str, name: str = "log", **settings: object) -> PreparedData:
        (tmp_path / f"{name}.csv").write_text(text)
        config = PrepareConfig.model_validate({"source": tmp_path / f"{name}.csv", **settings})
        prepare(config, tmp_path / name)
        return PreparedData.open(tmp_path / name)

    return make
