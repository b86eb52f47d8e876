"""Ready vectors of items and queries, from files to answers over HTTP, in one process."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import turret
from tests.support.service_app import ids, recommended, serving
from turret.data.features.feature import Feature
from turret.tower.layers.feature_layers import FeatureLayers, VectorLayer
from turret.tower.towers.alike import kept_directions
from turret.training.run import build_model
from turret.training.warm_start import restandardise

WIDTH, ITEMS, USERS = 16, 40, 120
SMALL = {"training.epochs": 3, "training.batch_size": 64, "tower.dimension": 16, "evaluation.k": [5]}


def write_shop(folder: Path) -> np.ndarray:
    """A log of users who stay within one of four groups, which only the vectors tell; the vectors."""
    random = np.random.default_rng(0)
    groups = np.arange(ITEMS) % 4
    centres = random.normal(size=(4, WIDTH))
    vectors = (centres[groups] + 0.2 * random.normal(size=(ITEMS, WIDTH))).astype(np.float16)
    rows = [
        {"user": f"u{user}", "item": int(item), "time": time}
        for user in range(USERS)
        for time, item in enumerate(random.choice(np.flatnonzero(groups == user % 4)[:-1], 6, replace=False))
    ]
    pl.DataFrame(rows).write_parquet(folder / "events.parquet")
    # The last item of each group has no event, and item 0 no vector.
    pl.DataFrame({"item": range(ITEMS), "group": groups}).write_parquet(folder / "items.parquet")
    np.save(folder / "look.npy", vectors[1:])
    np.save(folder / "look.ids.npy", np.arange(1, ITEMS))
    return vectors


def test_vectors_reach_the_answers(tmp_path: Path) -> None:
    vectors = write_shop(tmp_path)
    data = turret.prepare(
        tmp_path / "events.parquet",
        tmp_path / "prepared",
        items=tmp_path / "items.parquet",
        settings={"item_features": {"vector": [f"look={tmp_path / 'look.npy'}"], "ignore": ["*"]}},
    )
    settings = {**SMALL, "tower.item.id": False, "tower.item.id_dropout": 0.0}
    run = turret.train(data, tmp_path / "run", experiment="dssm", settings=settings)
    run.export(tmp_path / "bundles", "v1")
    with serving(tmp_path / "bundles") as client:
        history = [1, 5, 9]  # of group 1
        items = recommended(client, history=history, k=5)["items"]
        assert [item["fields"]["group"] for item in items] == [1] * 5
        put = client.put("/v1/items/900", json={"features": {"look": vectors[1].tolist()}})
        assert put.status_code == 200, put.text
        assert client.get("/v1/items/900").json()["fields"] == {}
        assert 900 in ids(recommended(client, history=history, k=8))
        for wrong in ([1.0], "text", [1.0] * 15 + ["x"], [1e30] * WIDTH):
            refused = client.put("/v1/items/902", json={"features": {"look": wrong}})
            assert refused.status_code == 422
            assert refused.json()["error"]["field"] == "features.look"
            assert "a list of 16 finite numbers" in refused.json()["error"]["message"]


def test_a_query_may_be_its_vector(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    answers = random.normal(size=(8, WIDTH)).astype(np.float32)
    queries = [f"q{number}" for number in range(160)]
    of = np.arange(160) % 8
    asked = (answers[of] + 0.3 * random.normal(size=(160, WIDTH))).astype(np.float32)
    pairs = pl.DataFrame({"query": queries, "item": of})
    pl.DataFrame({"item": range(8)}).write_csv(tmp_path / "items.csv")
    np.save(tmp_path / "answers.npy", answers)
    np.save(tmp_path / "answers.ids.npy", np.arange(8))
    np.save(tmp_path / "queries.npy", asked)
    np.save(tmp_path / "queries.ids.npy", np.array(queries))
    settings = {
        "item_features.vector": [f"sentence={tmp_path / 'answers.npy'}"],
        "user_features.vector": [f"sentence={tmp_path / 'queries.npy'}"],
    }
    items = tmp_path / "items.csv"
    data = turret.prepare(None, tmp_path / "prepared", queries=pairs, items=items, settings=settings)
    wide = dict.fromkeys(("tower.dimension", "tower.user.feature_width", "tower.item.feature_width"), 32)
    own = {"tower.user.features": ["sentence"], "tower.item.features": ["sentence"], "training.epochs": 1}
    run = turret.train(data, tmp_path / "run", experiment="questions", settings={**wide, **own})
    model = build_model(run.run.experiment, data).eval()
    with torch.no_grad():
        scored = model.catalog_vectors()
    expected = torch.nn.functional.normalize(torch.from_numpy(answers))
    # Before the training, cosines are those of the ready vectors.
    torch.testing.assert_close(scored @ scored.T, expected @ expected.T, rtol=1e-4, atol=1e-4)
    bundle = run.export(tmp_path / "bundles", "v1")
    found = turret.load(bundle.parent).search(features={"sentence": answers[3].tolist()}, k=1)
    assert [one.id for one in found] == [3]


def test_a_missing_vector_is_learned_and_leaves_the_others_alone() -> None:
    layers = FeatureLayers((Feature(name="look", kind="vector", width=3, deviation=2.0),), width=4)
    layer = layers.tables["0"]
    assert isinstance(layer, VectorLayer)
    given = torch.tensor([[1.0, 2.0, 3.0], [torch.nan] * 3])
    out = layers({"look": given})
    out.sum().backward()
    torch.testing.assert_close(out[0], layer.linear.weight @ given[0])
    assert layer.missing.grad is not None
    assert layer.missing.grad.tolist() == [1.0] * 4
    assert layer.linear.weight.grad is not None
    assert layer.linear.weight.grad.isfinite().all()


def test_another_deviation_changes_no_output() -> None:
    before, after = (Feature(name="look", kind="vector", width=3, deviation=one) for one in (2.0, 5.0))
    layers = FeatureLayers((after,), width=4)
    reader = torch.nn.Linear(4, 2)
    raw = torch.tensor([[1.0, 2.0, 3.0]])
    expected = reader(layers({"look": raw / 2.0}))
    restandardise(reader, 0, layers, (before,))
    torch.testing.assert_close(reader(layers({"look": raw / 5.0})), expected)


@pytest.mark.parametrize(
    ("width", "dimension", "tolerance"), [(16, 16, 1e-6), (16, 64, 1e-6), (512, 256, 0.2)]
)
def test_inner_products_are_kept(width: int, dimension: int, tolerance: float) -> None:
    vectors = torch.nn.functional.normalize(
        torch.randn(20, width, generator=torch.Generator().manual_seed(2))
    )
    projected = vectors @ kept_directions(width, dimension).T
    torch.testing.assert_close(projected @ projected.T, vectors @ vectors.T, rtol=0.0, atol=tolerance)
