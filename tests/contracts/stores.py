"""An empty place for each kind of store: the shipped ones, and one that another package adds."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support.redis_cluster import place_in_cluster
from tests.support.redis_server import place_in_redis
from turret.service.stores.contract import StoreKind
from turret.service.stores.registry import store_kind

# As pip would have installed it.
THIRD_PARTY = Path(__file__).parents[1] / "fixtures" / "journal_store"
if str(THIRD_PARTY) not in sys.path:
    sys.path.append(str(THIRD_PARTY))

ADDRESSES: dict[str, Callable[[Path], str]] = {
    "memory": lambda folder: "memory://",
    "sqlite": lambda folder: f"sqlite:///{folder}/histories.sqlite",
    "redis": place_in_redis,
    "redis+cluster": place_in_cluster,
    "journal": lambda folder: f"journal:///{folder}/histories.journal",
}
_MARKS = {"redis": pytest.mark.process, "redis+cluster": pytest.mark.nightly}
STORE_KINDS: dict[str, StoreKind] = {name: store_kind(f"{name}://") for name in ADDRESSES}


def marked(names: Iterable[str]) -> list[Any]:
    """The names as parameters of a test, each with the tier of its server."""
    return [pytest.param(name, marks=_MARKS.get(name, ())) for name in names]


SHARED = [name for name, kind in STORE_KINDS.items() if kind.is_shared]
