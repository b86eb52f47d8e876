"""A bundle that has everything the document of the calls can speak of: features, fields, times, new items."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.conftest import USER_FEATURES, contents
from tests.support.item_towers import with_item_tower
from turret.tower.bundle.publish import publish

COUNTRIES = ("nl", "de", "fr")


def publish_described(root: Path, version: str = "v1", seed: int = 0) -> None:
    """Publish it: 60 items with ids from 100, and a field of each kind that a filter reads."""
    plain = contents(version, features=USER_FEATURES, times=True, seed=seed)
    count = len(plain.item_vectors)
    fields: dict[str, list[Any]] = {
        "title": [f"Item {row}" for row in range(count)],
        "genres": [["drama"] if row % 3 else ["drama", "noir"] for row in range(count)],
        "year": [None if row % 10 == 0 else 1960 + row for row in range(count)],
        "sizes": [[row % 4, 10] for row in range(count)],
        "new": [row % 2 == 0 for row in range(count)],
        "country": [COUNTRIES[row % 3] for row in range(count)],
        "anything": [row if row % 2 else str(row) for row in range(count)],
        "nothing": [None] * count,
    }
    publish(root, with_item_tower(replace(plain, fields=fields)))
