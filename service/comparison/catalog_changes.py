"""The differences between the catalogs of two versions, as they were published."""

from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from turret.tower.bundle.bundle import Bundle

EXAMPLES = 10
_AT_ONCE = 100  # rows between two rests: half a millisecond


def catalog_changes(live: Bundle, other: Bundle, rest: Callable[[], None]) -> dict[str, Any]:
    """Count the items that `other` adds, lacks, and has with other fields; see `CatalogAnswer`.

    The examples are those with the most training events. `rest` is called now and then.
    """
    is_removed = np.ones(len(live.vocabulary), dtype=bool)
    is_added = np.zeros(len(other.vocabulary), dtype=bool)
    changed_fields = 0
    for row in range(len(other.vocabulary)):
        live_row = live.vocabulary.row(other.vocabulary.id(row))
        if live_row is None:
            is_added[row] = True
        else:
            is_removed[live_row] = False
            changed_fields += _differ(live.catalog.json_of(live_row), other.catalog.json_of(row))
        if row % _AT_ONCE == 0:
            rest()
    added, removed = np.flatnonzero(is_added), np.flatnonzero(is_removed)
    return {
        "added": len(added),
        "removed": len(removed),
        "kept": len(is_added) - len(added),
        "changed_fields": changed_fields,
        "added_examples": _examples(other, added),
        "removed_examples": _examples(live, removed),
    }


def _differ(live: bytes, other: bytes) -> bool:
    """Whether two JSON objects differ; the order of their fields doesn't count."""
    return live != other and bool(orjson.loads(live) != orjson.loads(other))


def _examples(bundle: Bundle, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
    most = rows[np.argsort(-bundle.popularity[rows], kind="stable")[:EXAMPLES]]
    return [
        {"id": bundle.vocabulary.id(row), "fields": orjson.Fragment(bundle.catalog.json_of(row))}
        for row in most.tolist()
    ]
