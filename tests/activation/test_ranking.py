"""The metrics of a bundle on the events of prepared data."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.activation.conftest import PublishTaste
from turret.activation import ranking
from turret.activation.held_out import HeldOut
from turret.activation.ranking import best_rows, metric_of_users
from turret.data.features import Feature
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.publish import BundleContents, publish


def last_events(data: PreparedData) -> HeldOut:
    users = np.arange(len(data.users))
    return HeldOut(users, np.asarray(data.splits[:, 1]), np.asarray(data.offsets[1:]), "of the test part")


def test_rankings_are_those_of_the_oracle(
    tmp_path: Path,
    publish_taste: PublishTaste,
    tastes: PreparedData,
    oracle: Callable[..., tuple[NDArray[np.int64], NDArray[np.float32]]],
) -> None:
    made = publish_taste("v1", noise=0.5)
    bundle = Bundle.open(tmp_path / "bundles" / "v1")
    values = metric_of_users(bundle, tastes, last_events(tastes), "mrr@5", 5)
    for user, value in enumerate(values):
        rows = [made.vocabulary.row(item) for item in tastes.item_ids.ids(tastes.history(user, "test"))]
        (target,) = tastes.item_ids.ids(tastes.targets(user, "test"))
        best = oracle(made.item_vectors, rows, 0.5, 5)[0].tolist()
        row = made.vocabulary.row(target)
        assert value == (1 / (best.index(row) + 1) if row in best else 0.0)
    assert 0.2 < values.mean() < 0.9


def test_the_best_rows_are_those_of_a_stable_sort() -> None:
    random = np.random.default_rng(0)
    for k in (1, 3, 20, 30):
        scores = random.integers(0, 5, 20).astype(np.float32)
        scores[random.integers(0, 20, 4)] = -np.inf
        expected = [row for row in np.argsort(-scores, kind="stable") if np.isfinite(scores[row])][:k]
        assert best_rows(scores, k).tolist() == expected


@pytest.mark.parametrize("absolute", [True, False])
def test_one_product_ranks_as_the_index_does(
    tmp_path: Path,
    make_contents: Callable[..., BundleContents],
    tastes: PreparedData,
    monkeypatch: pytest.MonkeyPatch,
    absolute: bool,
) -> None:
    publish(tmp_path, make_contents(absolute=absolute))
    bundle = Bundle.open(tmp_path / "v1")
    by_product = metric_of_users(bundle, tastes, last_events(tastes), "mrr@10", 10)
    monkeypatch.setattr(ranking, "_SCORES_A_BLOCK", 130)  # two users
    np.testing.assert_array_equal(
        metric_of_users(bundle, tastes, last_events(tastes), "mrr@10", 10), by_product
    )
    index = bundle.manifest.index.model_copy(update={"is_exact": False})
    bundle.manifest = bundle.manifest.model_copy(update={"index": index})
    np.testing.assert_array_equal(
        metric_of_users(bundle, tastes, last_events(tastes), "mrr@10", 10), by_product
    )


def test_an_unknown_item_is_a_miss_and_an_unknown_history_gets_popular_items(
    tmp_path: Path, make_contents: Callable[..., BundleContents]
) -> None:
    """The bundle has the items 100 to 159, the most popular first."""
    lines = ["a,101", "a,900", "b,900", "b,100", "c,901", "c,159"]
    (tmp_path / "log.csv").write_text("\n".join(["user_id,item_id", *lines]) + "\n")
    config = {"source": tmp_path / "log.csv", "columns": {"in_file_order": True}}
    prepare(PrepareConfig.model_validate({**config, "split": {"kind": "last"}}), tmp_path / "data")
    data = PreparedData.open(tmp_path / "data")
    publish(tmp_path / "bundles", make_contents())
    users = np.arange(3)
    targets = HeldOut(users, np.asarray(data.offsets[1:]) - 1, np.asarray(data.offsets[1:]), "")
    bundle = Bundle.open(tmp_path / "bundles" / "v1")
    assert metric_of_users(bundle, data, targets, "hr@10", 10).tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("exclude_seen", [True, False])
def test_items_of_the_history_are_ranked_as_the_bundle_says(
    tmp_path: Path, make_contents: Callable[..., BundleContents], exclude_seen: bool
) -> None:
    (tmp_path / "log.csv").write_text("user_id,item_id\na,101\na,101\n")
    config = {"source": tmp_path / "log.csv", "columns": {"in_file_order": True}}
    prepare(PrepareConfig.model_validate(config), tmp_path / "data")
    data = PreparedData.open(tmp_path / "data")
    publish(tmp_path / "bundles", replace(make_contents(), exclude_seen=exclude_seen))
    bundle = Bundle.open(tmp_path / "bundles" / "v1")
    targets = HeldOut(np.array([0]), np.array([1]), np.array([2]), "")
    assert metric_of_users(bundle, data, targets, "hr@1", 1).tolist() == [0.0 if exclude_seen else 1.0]


def test_features_and_times_of_the_data_are_read(
    tmp_path: Path,
    make_contents: Callable[..., BundleContents],
    user_features: tuple[Feature, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A category that a user lacks is left out."""
    (tmp_path / "log.csv").write_text(
        "user_id,item_id,timestamp\n"
        + "".join(f"u{user},{item},{1_700_000_000 + item * 3600}\n" for user in (1, 2) for item in (103, 110))
    )
    (tmp_path / "users.csv").write_text("user_id,country,age,likes\nu1,de,20,drama|comedy\nu2,,,\n")
    settings: dict[str, Any] = {
        "source": tmp_path / "log.csv",
        "users": tmp_path / "users.csv",
        "user_features": {"category": ["country"], "number": ["age"], "multi": ["likes"]},
    }
    prepare(PrepareConfig.model_validate(settings), tmp_path / "data")
    data = PreparedData.open(tmp_path / "data")
    assert data.user_features.raw(0) == {"country": "de", "age": 20.0, "likes": ["drama", "comedy"]}
    assert data.user_features.raw(1) == {"age": 20.0, "likes": []}
    publish(tmp_path / "bundles", make_contents(features=user_features, times=True))
    bundle = Bundle.open(tmp_path / "bundles" / "v1")
    asked: list[Any] = []
    encode = bundle.encoder.encode

    def recording(*arguments: Any) -> Any:
        asked.append(arguments)
        return encode(*arguments)

    monkeypatch.setattr(bundle.encoder, "encode", recording)
    targets = HeldOut(np.arange(2), np.asarray(data.offsets[1:]) - 1, np.asarray(data.offsets[1:]), "")
    metric_of_users(bundle, data, targets, "ndcg@10", 10)
    ((histories, features, times),) = asked
    assert [rows.tolist() for rows in histories] == [[3], [3]]
    assert features == [data.user_features.raw(0), data.user_features.raw(1)]
    assert [one.events.tolist() for one in times] == [[1_700_000_000.0 + 103 * 3600]] * 2
    assert [one.asked for one in times] == [1_700_000_000.0 + 110 * 3600] * 2
