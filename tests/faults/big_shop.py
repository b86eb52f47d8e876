"""A catalog that is large enough for approximate indexes, and its right answers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.conftest import contents
from turret.tower.bundle.publish import publish, reindex
from turret.tower.format.listing import point
from turret.tower.format.manifest import MANIFEST, Manifest, read_manifest, write_manifest
from turret.tower.tuning.choice import IndexRequest

COUNT, FIRST, WIDTH, TEMPERATURE = 2_500, 100, 16, 0.5
ASKED = 0.8  # recall: low, so that an index that misses nothing by accident is no approximate one
SEED = 5
# Shares of the catalog by value of the field `share`; an item has those of its place in a random order.
SHARES = {"whole": COUNT, "half": COUNT // 2, "tenth": COUNT // 10, "some": 80, "two": 2, "one": 1}


@dataclass(frozen=True)
class Shop:
    """A folder with one current version, and what is needed to know its right answers."""

    root: Path
    vectors: NDArray[np.float32]
    place: NDArray[np.int64]
    manifest: Manifest

    def ids(self, share: str) -> set[int]:
        """The items that a filter for a share allows."""
        return set((FIRST + np.flatnonzero(self.place < SHARES[share])).tolist())

    def fields(self, item: int) -> dict[str, Any]:
        """What the catalog says of an item."""
        return fields_at(int(self.place[item - FIRST]))

    def best(self, history: Sequence[int], allowed: Iterable[int]) -> list[tuple[int, float]]:
        """Allowed items with their scores, best first: in float64, one after another, by sorting."""
        rows = np.array(sorted(allowed), dtype=np.int64) - FIRST
        user = self.vectors[np.array(history) - FIRST].astype(np.float64).mean(axis=0)
        scores = self.vectors[rows].astype(np.float64) @ (user / np.linalg.norm(user)) / TEMPERATURE
        order = np.lexsort((rows, -scores))
        return list(zip((rows[order] + FIRST).tolist(), scores[order].tolist(), strict=True))


def fields_at(place: int) -> dict[str, Any]:
    """The fields of the item at a place of the random order."""
    return {"share": [name for name, size in SHARES.items() if place < size], "place": place}


def publish_shop(root: Path, kind: str, subset_rows: int | None = None) -> Shop:
    """Publish it with an index of a kind.

    An index's `subset_rows`, up to which allowed items are scored exactly, was measured on this machine;
    given, it is that, so that filters of more items have to go through the index.
    """
    place = np.random.default_rng(SEED).permutation(COUNT)
    described = [fields_at(at) for at in place.tolist()]
    plain = contents("v1", ids=tuple(range(FIRST, FIRST + COUNT)), dimension=WIDTH)
    users = np.random.default_rng(SEED + 1).standard_normal((64, WIDTH)).astype(np.float32)
    users /= np.linalg.norm(users, axis=1, keepdims=True)
    fields = {name: [one[name] for one in described] for name in described[0]}
    publish(root, replace(plain, fields=fields, query_vectors=users))
    folder = root / "v1"
    if kind != "flat":
        folder = reindex(folder, IndexRequest(kind, ASKED), "v2")
    manifest = read_manifest(folder)
    if subset_rows is not None:
        manifest = manifest.model_copy(
            update={"index": manifest.index.model_copy(update={"subset_rows": subset_rows})}
        )
        (folder / MANIFEST).unlink()  # it is read-only
        write_manifest(folder, manifest)
    point(root, folder.name)
    return Shop(root, plain.item_vectors, place, manifest)
