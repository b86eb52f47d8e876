"""The inputs of an exported tower from raw features."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from turret.data.errors import DataError
from turret.data.features import Feature, date_features, date_names, number_of
from turret.data.moments import parse_moment
from turret.tower.errors import EncodingError
from turret.tower.format.safe_open import read_regular

Code = int | list[int] | float | NDArray[np.float32]
Inputs = dict[str, NDArray[Any]]

_FITS = {
    "number": 'a finite number in a usual range, or a text with one, such as "€ 12.50"',
    "category": "one value (text or a number)",
    "multi": "a list of values",
    "path": "a text of levels, such as Women > Shoes",
    "text": "a text",
}
# In deviations from the mean: far above real values, and far below overflow inside a network.
LARGEST_NUMBER = 1e6
FEATURES = TypeAdapter(tuple[Feature, ...])
# Far above any exported file, and far below the memory of a machine.
_FEATURES_BYTES = 64_000_000
# The items and the codes of a block, until an item more exceeds either: with vectors of 64 floats, a tower
# reads 16,384 codes as 4 MB. So many zeros an item cost less than a further run of the tower.
_BLOCK_ITEMS, _BLOCK_CODES, _FREE_ZEROS = 1024, 16_384, 16


def read_features(path: Path) -> tuple[Feature, ...]:
    """The features in a file of a bundle. Raises BundleError or ValidationError for an invalid one."""
    return FEATURES.validate_json(read_regular(path, _FEATURES_BYTES))


class FeatureInputs:
    """The feature inputs of a user or item tower: one input `feature_<name>` for each.

    int64 [B] for a category, float32 [B] for a number, int64 [B, M] of codes and then zeros for multi, path
    and text, float32 [B, width] for a vector.
    """

    def __init__(self, features: Sequence[Feature], of: Literal["user", "item"]) -> None:
        self.features = tuple(features)
        self.input_names = {f"feature_{feature.name}" for feature in features}
        self._names = {feature.name for feature in features}
        self._numbers = {feature.name for feature in features if feature.kind == "number"}
        self._of = of

    def reads(self, column: str) -> bool:
        """Whether a column of a catalog is a feature, or a date of which features are made."""
        return column in self._names or bool(self._parts_of_date(column))

    def from_columns(self, given: Mapping[str, object]) -> dict[str, object]:
        """Return values of the columns of a catalog as those of the features that `prepare` reads there.

        A date is its two features, and a text with a number is the number; all others are unchanged.
        """
        read: dict[str, object] = {}
        for name, raw in given.items():
            parts = self._parts_of_date(name)
            if parts and raw is None:
                read |= dict.fromkeys(parts)
            elif parts and isinstance(raw, str) and (moment := parse_moment(raw)) is not None:
                dated = date_features(name, moment / 86_400_000)
                read |= {part: dated[part] for part in parts}
            elif name in self._numbers and isinstance(raw, str) and (number := number_of(raw)) is not None:
                read[name] = number
            else:
                read[name] = raw
        return read

    def _parts_of_date(self, name: str) -> list[str]:
        """The features of the dates of a column; none where the column is a feature itself."""
        return [] if name in self._names else [part for part in date_names(name) if part in self._names]

    def encode(self, position: int, given: Mapping[str, object]) -> list[Code]:
        """Return one code, list of codes or number a feature; one that is not given counts as unknown.

        Raises EncodingError, with `position`, for a feature that the tower doesn't have or a value that
        doesn't fit it.
        """
        given = self.from_columns(given)
        for name in given:
            if name not in self._names:
                message = f"this model reads no {self._of} features; leave this out"
                if self._names:
                    known = ", ".join(sorted(self._names))
                    message = f"this model doesn't read this; it reads {known}"
                if self._parts_of_date(name):
                    message = "this is a date; write it like 2024-05-01, or null where it is unknown"
                raise EncodingError(position, f"features.{name}", given[name], message)
        codes = []
        for feature in self.features:
            raw = given.get(feature.name)
            code = _encoded(feature, raw)
            if code is None:
                fits = _FITS.get(feature.kind, feature.fits)
                message = f"this feature takes {fits}, or null where it is unknown"
                raise EncodingError(position, f"features.{feature.name}", raw, message)
            codes.append(code)
        return codes

    def inputs(self, given: Sequence[Mapping[str, object]], first: int = 0) -> Inputs:
        """Return the tower's inputs for B users or items.

        Raises EncodingError as `encode` does, with positions from `first` on.
        """
        return self._columns(
            [self.encode(position, features) for position, features in enumerate(given, first)]
        )

    def blocks(self, given: Sequence[Mapping[str, object]]) -> Iterator[tuple[list[int], Inputs]]:
        """Yield the tower's inputs for users or items in blocks, each with the positions of its own.

        Lists of codes are padded to the longest of their block. Those of similar lengths share a block, with
        no more zeros than codes and `_FREE_ZEROS` an item, so that memory and time follow the codes.

        Raises EncodingError as `encode` does.
        """
        encoded: dict[int, list[Code]] = {}
        codes = 0
        for position, features in enumerate(given):
            encoded[position] = self.encode(position, features)
            codes += sum(_lengths(encoded[position]))
            if codes >= _BLOCK_CODES or len(encoded) == _BLOCK_ITEMS or position == len(given) - 1:
                for block in _alike(encoded):
                    yield block, self._columns([encoded[one] for one in block])
                encoded, codes = {}, 0

    def _columns(self, encoded: Sequence[Sequence[Code]]) -> Inputs:
        return {
            f"feature_{feature.name}": _column(feature, [row[number] for row in encoded])
            for number, feature in enumerate(self.features)
        }

    def readable(self, given: Mapping[str, object]) -> dict[str, object]:
        """Return the features that the tower has, with valid values."""
        given = self.from_columns(given)
        return {
            feature.name: given[feature.name]
            for feature in self.features
            if feature.name in given and _encoded(feature, given[feature.name]) is not None
        }

    def any_known(self, given: Mapping[str, object]) -> bool:
        """Whether a text or a vector among the features has a known part."""
        return any(
            given.get(feature.name) is not None and bool(np.any(feature.encode_one(given[feature.name])))
            for feature in self.features
            if feature.kind in ("text", "vector")
        )


def _lengths(encoded: Sequence[Code]) -> list[int]:
    return [len(code) for code in encoded if isinstance(code, list)]


def _alike(encoded: Mapping[int, Sequence[Code]]) -> Iterator[list[int]]:
    """Yield the positions of rows whose lists of codes have similar lengths, the shortest first."""
    lengths = {position: _lengths(row) for position, row in encoded.items()}
    block: list[int] = []
    longest: list[int] = []
    codes = 0
    for position in sorted(lengths, key=lambda one: sum(lengths[one])):
        own = lengths[position]
        widths = [*map(max, longest or own, own)]
        codes += sum(own)
        if block and (len(block) + 1) * sum(widths) > 2 * codes + _FREE_ZEROS * (len(block) + 1):
            yield block
            block, widths, codes = [], own, sum(own)
        block.append(position)
        longest = widths
    if block:
        yield block


def _encoded(feature: Feature, raw: object) -> Code | None:
    """The code, or None for a value that doesn't fit."""
    try:
        encoded = feature.encode_one(raw)
    except (DataError, OverflowError, ValueError):
        return None
    if isinstance(encoded, np.ndarray):
        return None if (np.abs(encoded) > LARGEST_NUMBER).any() else encoded
    return encoded if not isinstance(encoded, float) or abs(encoded) <= LARGEST_NUMBER else None


def _column(feature: Feature, encoded: list[Any]) -> NDArray[Any]:
    if feature.kind == "number":
        return np.array(encoded, dtype=np.float32)
    if feature.kind == "vector":
        return np.stack(encoded)
    if feature.kind == "category":
        return np.array(encoded, dtype=np.int64)
    codes = np.zeros((len(encoded), max(1, *map(len, encoded), 1)), dtype=np.int64)
    for position, row in enumerate(encoded):
        codes[position, : len(row)] = row
    return codes
