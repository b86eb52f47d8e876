"""A check of the processor time of a bundle's towers, before they serve requests."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from turret.data.features import Feature
from turret.tower.errors import BundleError, EncodingError
from turret.tower.inference.encoder import TOGETHER

if TYPE_CHECKING:
    from turret.tower.bundle.bundle import Bundle

# Processor time, which a busy machine doesn't change. Most towers take less than a thousandth of it.
HISTORY_SECONDS = 1.0
# For all lengths together; a slow tower is tried on some of them.
_ALL_SECONDS = 1.0
# The most characters, or values, of one feature in a request.
_LARGEST_FEATURE = 2000


def check_cost(bundle: "Bundle", longest: int, processor: Callable[[], float] = time.thread_time) -> None:
    """Encode histories of every length up to `longest` items, and as many at once as are encoded together.

    `tower.inference.onnx_check` guarantees that the time depends on lengths alone, so one history of each
    suffices. The longest, the shortest and the largest batch come first, the others in random order, until a
    second is used. The item tower encodes one item. Raises BundleError when one takes more than a second by
    `processor`, the processor time of this thread.
    """
    longest = min(longest, bundle.manifest.history_length)
    rows = np.arange(longest) % len(bundle.vectors)
    features = _largest(bundle.user_features)
    others = [(count, 1) for count in range(2, longest)] + [(longest, n) for n in range(2, TOGETHER)]
    order = np.random.default_rng().permutation(len(others))
    used = 0.0
    for count, together in ((longest, 1), (1, 1), (longest, TOGETHER), *(others[i] for i in order)):
        encode = _encoding(bundle, [rows[:count]] * together, [features] * together)
        used += _timed(encode, together, f"a history of {count} items", processor)
        if used > _ALL_SECONDS:
            break
    if bundle.item_encoder is not None:
        encoder = bundle.item_encoder
        largest = _largest(encoder.features)
        _timed(lambda: encoder.encode([largest]), 1, "an item", processor)


def _encoding(bundle: "Bundle", histories: list[Any], features: list[Any]) -> Callable[[], object]:
    return lambda: bundle.encoder.encode(histories, features)


def _timed(encode: Callable[[], object], count: int, of: str, processor: Callable[[], float]) -> float:
    """Measure the processor time of `count` histories or items, a second time if it takes too long.

    Raises BundleError when it takes too long twice.
    """
    taken = 0.0
    for _ in range(2):
        begun = processor()
        with suppress(EncodingError):  # other features may be valid
            encode()
        taken = processor() - begun
        if taken <= HISTORY_SECONDS * count:
            return taken
    raise BundleError(
        f"a tower takes {taken / count:.1f} s of processor time for {of}, and {HISTORY_SECONDS:g} s is the "
        "most that is served; train a smaller one, or one that reads fewer items"
    )


def _largest(features: tuple[Feature, ...]) -> Mapping[str, Any]:
    """The largest values of every feature that a request may hold."""
    largest: dict[str, Any] = {}
    for feature in features:
        if feature.kind == "text":
            largest[feature.name] = "".join(feature.values[:_LARGEST_FEATURE])[:_LARGEST_FEATURE]
        elif feature.kind == "multi" and feature.values:
            values = feature.values[:_LARGEST_FEATURE]
            largest[feature.name] = [values[i % len(values)] for i in range(_LARGEST_FEATURE)]
    return largest
