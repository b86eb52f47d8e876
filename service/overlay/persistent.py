"""Immutable maps and arrays; the cost of a changed copy is proportional to the change."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

K = TypeVar("K")
V = TypeVar("V")
# A layer of up to so many times the size of a newer layer merges with it: a look-up reads log4(n) layers.
_RATIO = 4
_ABSENT: Any = object()


class LayeredMap(Mapping[K, V]):
    """A map of values that are not None: layers of changes, the oldest first, in which None removes a key."""

    def __init__(self, entries: Mapping[K, V] | None = None) -> None:
        self._layers: tuple[dict[K, V | None], ...] = ({**entries},) if entries else ()
        self._count = len(entries or ())

    def changed(self, changes: Mapping[K, V], removed: Iterable[K] = ()) -> "LayeredMap[K, V]":
        """This map with `changes`, and without the keys `removed` that are not among them."""
        layer: dict[K, V | None] = {**dict.fromkeys(removed), **changes}
        copy: LayeredMap[K, V] = LayeredMap()
        copy._count = self._count + sum((layer[key] is not None) - (key in self) for key in layer)
        layers = [*self._layers]
        while layers and len(layers[-1]) <= _RATIO * len(layer):
            layer = {**layers.pop(), **layer}
        if not layers:
            layer = {key: value for key, value in layer.items() if value is not None}
        copy._layers = (*layers, layer)
        return copy

    def keys_since(self, earlier: "LayeredMap[K, V]") -> set[K]:
        """Keys whose value may differ from an earlier map; all keys whose value differs are among them."""
        layers, others = self._layers, earlier._layers
        pairs = zip(layers, others, strict=False)
        shared = next(
            (n for n, (layer, other) in enumerate(pairs) if layer is not other), min(len(layers), len(others))
        )
        return {key for layer in layers[shared:] + others[shared:] for key in layer}

    def get(self, key: K, default: Any = None) -> Any:
        """Return the value of a key, `default` where it has none."""
        for layer in reversed(self._layers):
            value = layer.get(key, _ABSENT)
            if value is not _ABSENT:
                return default if value is None else value
        return default

    def __getitem__(self, key: K) -> V:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        present: V = value
        return present

    def __contains__(self, key: object) -> bool:
        return self.get(key) is not None  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[K]:
        merged: dict[K, V | None] = {}
        for layer in self._layers:
            merged |= layer
        return (key for key, value in merged.items() if value is not None)

    def __len__(self) -> int:
        return self._count


class GrowingArray:
    """An array `values` [M, ...] with room behind it, into which its first longer copy is written."""

    def __init__(self, values: NDArray[Any]) -> None:
        self.values = values
        self._buffer = values
        self._has_longer = False

    def extended(self, more: NDArray[Any]) -> "GrowingArray":
        """This array with more rows."""
        count, buffer = len(self.values) + len(more), self._buffer
        if self._has_longer or count > len(buffer):
            buffer = np.empty((count + count // 4, *more.shape[1:]), dtype=more.dtype)
            buffer[: len(self.values)] = self.values
        else:
            self._has_longer = True
        buffer[len(self.values) : count] = more
        longer = GrowingArray(buffer[:count])
        longer._buffer = buffer
        return longer
