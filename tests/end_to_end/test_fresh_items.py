"""From a trained item tower to a new item in answers."""

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.support.shops import small_shop
from turret.data.prepared import PreparedData
from turret.service.http.app import create_app
from turret.service.settings import Settings
from turret.tower.bundle.bundle import load
from turret.tower.format.pointer import current
from turret.training.config.experiment import ExperimentConfig
from turret.training.export.export import export
from turret.training.run import Run
from turret.training.trainer import train

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return small_shop(tmp_path_factory.mktemp("shop"), users=300, items=200)


@pytest.fixture(scope="module")
def bundles(shop: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle whose towers read titles, genres and prices, and learnt to do without ids."""
    item = {"features": "all", "hidden": [32], "id_dropout": 0.5}
    settings: dict[str, Any] = {
        "tower": {"dimension": 16, "item": item},
        "training": {"epochs": 3, "batch_size": 256, "device": "cpu"},
    }
    folder = tmp_path_factory.mktemp("fresh")
    run = Run(folder / "run", ExperimentConfig.model_validate(settings), shop.folder, shop.fingerprint)
    train(run, shop, resume=False, report=lambda _: None)
    export(run, shop, folder / "bundles")
    return folder / "bundles"


def features(shop: PreparedData, row: int) -> dict[str, Any]:
    """Those that the model reads, as a shop would compute them from its own item."""
    released = date.fromisoformat(shop.fields["released"][row])
    return {
        **{name: shop.fields[name][row] for name in ("title", "genres", "price")},
        "released_days": (released - date(1970, 1, 1)).days,
        "released_month": str(released.month),
    }


def test_a_new_item_comes_near_the_one_whose_features_it_has(shop: PreparedData, bundles: Path) -> None:
    """The most popular ones, of which most is learnt that their features don't say."""
    popular = np.argsort(-shop.item_counts("train"), kind="stable")[:10].tolist()
    places = []
    with TestClient(create_app(Settings(bundles=bundles, store="memory://"))) as client:
        for number, row in enumerate(popular):
            new = f"new-{number}"
            body = {"features": features(shop, row), "fields": {"title": "New"}}
            assert client.put(f"/v1/items/{new}", json=body).json()["vector"] == "features"
            near = client.get(f"/v1/items/{new}/similar?k=1000").json()["items"]
            known = [item["id"] for item in near if not str(item["id"]).startswith("new-")]
            places.append(known.index(shop.item_ids.id(row)))
            shown = client.get(f"/v1/items/{new}").json()
            assert (shown["fresh"], shown["features"]) == (True, body["features"])
            shown = client.get(f"/v1/items/{shop.item_ids.id(row)}").json()
            assert (shown["in_index"], shown["fields"]["title"]) == (True, shop.fields["title"][row])
            assert shown["training_events"] == shop.item_counts("train")[row]
            assert shown["popularity_rank"] <= number + 1
    assert np.median(places) < 10, places  # of 200; by chance it is 100
    assert max(places) < 60, places


def test_features_of_another_item_do_not_bring_it_near(shop: PreparedData, bundles: Path) -> None:
    """The negative control; what is counted is how many of the 200 items are nearer than the item itself."""
    bundle = load(bundles, current(bundles) or "")
    assert bundle.item_encoder is not None
    vectors = bundle.item_encoder.encode([features(shop, row) for row in range(len(shop.item_ids))])
    scores = vectors @ bundle.vectors.T
    own = (scores > np.diag(scores)[:, None]).sum(axis=1)
    others = (scores[::-1] > np.diag(scores[::-1])[:, None]).sum(axis=1)
    assert np.median(own) < 10 < 30 < np.median(others)
