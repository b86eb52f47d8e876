from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from turret import prepare
from turret.data.prepared import PreparedData
from turret.training.auto.tastes import tastes


def prepared(folder: Path, likes: bool, lists: Sequence[str | None] | None = None) -> PreparedData:
    """A log of 40 users and 24 items of 4 categories; with `likes`, a user has items of one category."""
    random = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for user in range(40):
        pool = np.arange(24)[np.arange(24) % 4 == user % 4] if likes else np.arange(24)
        chosen = random.choice(pool, 6)
        rows += [{"user": user, "item": int(item), "time": place} for place, item in enumerate(chosen)]
    items = pl.DataFrame(
        {
            "item": range(24),
            "shelf": [f"shelf {item % 4}" if item % 6 else None for item in range(24)],
            "tags": lists or [["a|b", "a", None, "b|c|d", "c"][item % 5] for item in range(24)],
        }
    )
    settings = {"item_features.category": ["shelf"], "item_features.multi": ["tags"]}
    return prepare(pl.DataFrame(rows), folder / "prepared", items=items, settings=settings)


def enumerated(data: PreparedData, name: str) -> float:
    """The ratio over all pairs of items, by the definition."""
    column = data.item_features.columns[name]

    def alike(one: int, other: int) -> float:
        first, second = (
            {code for code in np.atleast_1d(_row(column, item)) if code} for item in (one, other)
        )
        return len(first & second) / max(len(first) * len(second), 1)

    starts, ends = data.bounds("train")
    own = [set(data.event_items[start:end].tolist()) for start, end in zip(starts, ends, strict=True)]
    within = [alike(*pair) for items in own for pair in combinations(items, 2)]
    log = [item for items in own for item in items]
    by_chance = [alike(one, other) for one in log for other in log if one != other]
    return float(np.mean(within) / np.mean(by_chance))


def _row(column: Any, item: int) -> Any:
    return column.row(item) if hasattr(column, "row") else column[item]


@pytest.mark.parametrize("likes", [True, False])
def test_the_ratios_are_those_of_all_pairs(tmp_path: Path, likes: bool) -> None:
    """Also with lists, and with items without a value."""
    data = prepared(tmp_path, likes)
    found = tastes(data)
    assert set(found) == {"shelf", "tags"}
    for name, ratio in found.items():
        assert ratio == pytest.approx(enumerated(data, name))


def test_a_taste_shows_and_its_absence_too(tmp_path: Path) -> None:
    """Of four categories that users keep to, and of four that they do not."""
    assert tastes(prepared(tmp_path / "likes", True))["shelf"] > 2.5
    assert tastes(prepared(tmp_path / "none", False))["shelf"] == pytest.approx(1.0, abs=0.25)


def test_features_without_values_and_logs_without_pairs_have_none(tmp_path: Path, shop: PreparedData) -> None:
    """Two items of the log have to share a value."""
    alone = [f"a{item}|b{item}|c{item}" for item in range(24)]
    assert "tags" not in tastes(prepared(tmp_path, True, lists=alone))
    nothing = np.column_stack([shop.offsets[:-1], shop.offsets[:-1]])
    assert tastes(PreparedData(**{**vars(shop), "splits": nothing})) == {}
