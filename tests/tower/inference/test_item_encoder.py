from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import contents
from tests.support.item_towers import item_features, item_tower, placed, with_item_tower
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.publish import publish
from turret.tower.errors import BundleError, EncodingError
from turret.tower.inference.item_encoder import ItemEncoder

HERE = [3.0, 0.0, 4.0]


@pytest.fixture(scope="module")
def encoder() -> ItemEncoder:
    return ItemEncoder(item_tower(3), 3, item_features(3))


def test_raw_features_become_vectors(encoder: ItemEncoder) -> None:
    given: list[dict[str, object]] = [
        {**placed(HERE)},
        {**placed(HERE), "kind": "film", "tags": ["new", "unheard of"]},
        {"kind": None},
    ]
    expected = np.array([[0.6, 0, 0.8], [-0.6, 0, -0.8], [1, 0, 0]])
    np.testing.assert_allclose(encoder.encode(given), expected, atol=1e-6)


def test_nothing_is_made_of_nothing(encoder: ItemEncoder) -> None:
    assert encoder.encode([]).shape == (0, 3)


def test_more_than_pass_at_once_come_out_in_order(encoder: ItemEncoder) -> None:
    angles = np.linspace(0, 3, 2500)
    given: list[dict[str, object]] = [{"n0": float(np.cos(a)), "n1": float(np.sin(a))} for a in angles]
    found = encoder.encode(given)
    np.testing.assert_allclose(found[:, :2], np.stack([np.cos(angles), np.sin(angles)], axis=1), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "value"), [("n1", "one"), ("n1", 1e300), ("kind", ["book"]), ("tags", "new"), ("colour", "red")]
)
def test_a_feature_that_does_not_fit_is_named_with_its_place(
    encoder: ItemEncoder, name: str, value: object
) -> None:
    """The place counts on over all that pass at once."""
    with pytest.raises(EncodingError) as caught:
        encoder.encode([{}] * 1500 + [{name: value}])
    assert (caught.value.position, caught.value.field) == (1500, f"features.{name}")


def test_what_another_version_was_sent_is_read_as_far_as_it_goes(encoder: ItemEncoder) -> None:
    given: dict[str, object] = {"n0": 1.0, "n1": "one", "colour": "red", "kind": "film"}
    assert encoder.readable(given) == {"n0": 1.0, "kind": "film"}


def test_a_tower_that_is_not_of_its_bundle_is_refused() -> None:
    with pytest.raises(BundleError, match="feature_n2"):
        ItemEncoder(item_tower(3), 3, item_features(2))
    with pytest.raises(BundleError, match="can't be run"):
        ItemEncoder(b"nonsense", 3, item_features(3))
    with pytest.raises(BundleError, match="without item features"):
        ItemEncoder(item_tower(3), 3, ())
    with pytest.raises(BundleError, match="shape"):
        ItemEncoder(item_tower(3), 4, item_features(3)).encode([{}])


def test_a_bundle_without_an_item_tower_has_no_encoder(bundles: Path, tmp_path: Path) -> None:
    assert Bundle.open(bundles / "v1").item_encoder is None
    opened = Bundle.open(publish(tmp_path / "with", with_item_tower(contents())))
    assert opened.item_encoder is not None
    assert opened.item_encoder.features == item_features(8)


def test_an_item_tower_comes_with_recorded_items(tmp_path: Path) -> None:
    made = with_item_tower(contents())
    unknown = made.recorded_items[0].model_copy(update={"id": 9})
    for recorded in ((), (unknown,)):
        with pytest.raises(BundleError, match="recorded item"):
            publish(tmp_path, replace(made, recorded_items=recorded))
