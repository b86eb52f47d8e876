import numpy as np
import pytest

from turret.data.prepared import PreparedData
from turret.training.auto.facts import facts_of


def test_the_figures_of_a_shop(shop: PreparedData) -> None:
    """Its users read series, so the order shows; its items and users have features."""
    facts = facts_of(shop)
    lengths = np.asarray(shop.splits[:, 0]) - np.asarray(shop.offsets[:-1])
    assert facts.examples == sum(max(length - 1, 0) for length in lengths.tolist())
    assert facts.items == len(shop.item_ids)
    assert facts.item_features == tuple(feature.name for feature in shop.manifest.item_features)
    texts = {feature.name for feature in shop.manifest.item_features if feature.kind in ("text", "number")}
    assert facts.item_tastes
    assert set(facts.item_features) - set(facts.item_tastes) == texts
    assert facts.order is not None
    assert facts.order > 1.5
    assert (facts.has_validation, facts.has_negatives) == (True, False)


def test_a_handful_of_events_shows_no_order_either_way(handmade: PreparedData) -> None:
    """Two of its 18 events repeat one of their user."""
    facts = facts_of(handmade)
    assert facts.order is None
    assert facts.repeat_share == pytest.approx(2 / 18)
    assert (facts.item_features, facts.user_features) == ((), ())


def test_data_without_a_validation_part_is_told(shop: PreparedData) -> None:
    whole = np.column_stack([shop.offsets[1:], shop.offsets[1:]])
    assert not facts_of(PreparedData(**{**vars(shop), "splits": whole})).has_validation
