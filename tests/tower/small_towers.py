"""Small towers and packed batches for the tests of this folder."""

import numpy as np
import torch

from turret.data.features.columns import Bag, Column, Features
from turret.data.features.feature import Feature
from turret.tower.layers.packed import PackedHistories
from turret.tower.towers.config import TowerConfig

ITEMS, USERS = 9, 4


def no_features(count: int) -> Features:
    return Features(count, (), {})


def item_features() -> Features:
    """A text, a category, a list and a number for nine items; some of them unknown or empty."""
    features = (
        Feature(name="title", kind="text", values=("#ab", "abc", "bc#")),
        Feature(name="brand", kind="category", values=("x", "y")),
        Feature(name="genres", kind="multi", values=("drama", "war", "noir")),
        Feature(name="price", kind="number", mean=2.0, deviation=3.0),
    )
    columns: dict[str, Column] = {
        "title": Bag(np.array([1, 2, 3, 1, 1, 3], dtype=np.int32), np.array([0, 3, 3, 4, 6, 6, 6, 6, 6, 6])),
        "brand": np.array([0, 1, 2, 1, 0, 2, 2, 1, 0], dtype=np.int32),
        "genres": Bag(np.array([1, 2, 3, 2, 2], dtype=np.int32), np.array([0, 0, 2, 3, 3, 4, 4, 5, 5, 5])),
        "price": np.linspace(-1, 1, ITEMS).astype(np.float32),
    }
    return Features(ITEMS, features, columns)


def user_features() -> Features:
    features = (
        Feature(name="country", kind="category", values=("fr", "is")),
        Feature(name="age", kind="number", mean=30.0, deviation=10.0),
        Feature(name="likes", kind="multi", values=("tea", "salt")),
    )
    columns: dict[str, Column] = {
        "country": np.array([1, 0, 2, 1], dtype=np.int32),
        "age": np.array([0.5, -1.0, 0.0, 2.0], dtype=np.float32),
        "likes": Bag(np.array([1, 2, 2], dtype=np.int32), np.array([0, 2, 2, 3, 3])),
    }
    return Features(USERS, features, columns)


def config(**user: object) -> TowerConfig:
    small = {} if "kind" in user else {"hidden": [7], "dropout": 0.0}
    return TowerConfig.model_validate({"dimension": 6, "user": {**small, **user}})


def times() -> dict[str, torch.Tensor]:
    """Gaps and clocks of eight events: from nothing to decades, all through the week, and one unknown."""
    gaps = torch.tensor([0.0, 0.7, 59.0, 3600.0, 90_000.0, 2e6, -1.0, 3e9])
    clocks = torch.tensor([0.0, 1234.5, 86_399.0, 200_000.0, 432_100.0, 604_799.0, -1.0, 500_000.0])
    return {"gaps": gaps, "clocks": clocks}


def packed() -> PackedHistories:
    """Two histories of five and three items end to end, and windows of them for five examples."""
    return PackedHistories(
        rows=torch.tensor([3, 1, 4, 1, 5, 2, 6, 0]),
        starts=torch.tensor([0, 0, 1, 5, 5]),
        ends=torch.tensor([1, 3, 5, 6, 8]),
        users=torch.tensor([0, 0, 0, 2, 2]),
        ages=torch.tensor([0.9, 0.5, 0.25, 1.0, 0.0]),
        **times(),
    )


def vectors(seed: int = 0) -> torch.Tensor:
    """Item vectors of the eight events."""
    return torch.randn(8, 6, generator=torch.manual_seed(seed))


def from_the_start() -> PackedHistories:
    """Every position of two histories: the examples of each share their window's start."""
    return PackedHistories(
        rows=torch.tensor([3, 1, 4, 1, 5, 2, 6, 0]),
        starts=torch.tensor([0, 0, 0, 0, 0, 5, 5, 5]),
        ends=torch.arange(1, 9),
        users=torch.tensor([0, 0, 0, 0, 0, 2, 2, 2]),
        ages=torch.zeros(8),
        **times(),
    )
