from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import contents
from tests.support.item_towers import placed, with_item_tower
from turret.service.stores.contract import Change, Changes
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.publish import publish

Changed = Callable[..., Change]


@pytest.fixture(scope="package")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles of eight coordinates: `v1` with an item tower, `names` with text ids, `ids` without a tower."""
    root = tmp_path_factory.mktemp("items")
    publish(root, with_item_tower(contents("v1")))
    publish(root, with_item_tower(contents("names", ids=[f"i{n}" for n in range(40)], seed=1)))
    publish(root, contents("ids"))
    return root


@pytest.fixture(scope="package")
def bundle(root: Path) -> Bundle:
    """60 items with the ids 100 to 159, and an item tower."""
    return Bundle.open(root / "v1")


@pytest.fixture
def put() -> Changed:
    """`put(number, item, axis, time, fields)`: an item at the end of an axis; long after any bundle."""

    def make(
        number: int, item: str, axis: int = 0, time: int = 9_999_999_999_999, fields: bytes = b'{"a":1}'
    ) -> Change:
        features = repr(placed(np.eye(8, dtype=np.float32)[axis])).replace("'", '"').encode()
        return Change(item, number, time, features, fields)

    return make


@pytest.fixture
def changes() -> Callable[..., Changes]:
    """`changes(*items)`, in the order of their numbers."""

    def make(*items: Change) -> Changes:
        return Changes(items[-1].number if items else 0, items)

    return make
