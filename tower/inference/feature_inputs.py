"""The inputs of an exported tower from raw features."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from turret.data.errors import DataError
from turret.data.features.feature import Code, Feature
from turret.data.features.texts import (
    FORM_SEPARATOR,
    LIST_SEPARATOR,
    date_features,
    date_names,
    list_of,
    number_of,
)
from turret.data.moments import parse_moment
from turret.tower.errors import EncodingError, first_with_others
from turret.tower.format.safe_open import read_regular

Inputs = dict[str, NDArray[Any]]

# The limit, in deviations from the mean, is far above real values, and far below overflow inside a network.
LARGEST_NUMBER = 1e6
FEATURES = TypeAdapter(tuple[Feature, ...])
# The size limit is far above any exported file, and far below the memory of a machine.
_FEATURES_BYTES = 64_000_000
# A block ends when it has this many items or codes: with vectors of 64 floats, a tower reads 16,384 codes as
# 4 MB. This many zeros an item cost less than a further run of the tower.
_BLOCK_ITEMS, _BLOCK_CODES, _FREE_ZEROS = 1024, 16_384, 16


def read_features(path: Path) -> tuple[Feature, ...]:
    """The features in a file of a bundle. Raises BundleError or ValidationError for an invalid one."""
    return FEATURES.validate_json(read_regular(path, _FEATURES_BYTES))


class FeatureInputs:
    """The feature inputs of a user or item tower: one input `feature_<name>` for each.

    Each input is an array of the feature's `Form`; lists of codes are padded with zeros at their end.
    Features named in `context` are of a request and not of its user; requests have them in `context`.
    """

    _UNREAD = Feature(name="", kind="text")

    def __init__(
        self, features: Sequence[Feature], of: Literal["user", "item"], context: Sequence[str] = ()
    ) -> None:
        self.features = tuple(features)
        self._context = tuple(context)
        self.input_names = {f"feature_{feature.name}" for feature in features}
        self._by_name = {feature.name: feature for feature in features}
        self._names = self._by_name.keys()
        self._of = of

    def reads(self, column: str) -> bool:
        """Whether a column of a catalog is a feature, or a date of which features are made."""
        return column in self._names or bool(self._parts_of_date(column))

    def from_columns(self, columns: Mapping[str, object]) -> dict[str, object]:
        """Return values of the columns of a catalog as values of the features that `prepare` reads there.

        A date becomes its two features, and a text with a number or a list becomes the number or the list;
        all other values are unchanged.
        """
        read: dict[str, object] = {}
        for name, raw in columns.items():
            parts = self._parts_of_date(name)
            if parts and raw is None:
                read |= dict.fromkeys(parts)
            elif parts and isinstance(raw, str) and (moment := self._moment(parts, raw)) is not None:
                dated = date_features(name, moment / 86_400_000)
                read |= {part: dated[part] for part in parts}
            elif isinstance(raw, str) and name in self._by_name:
                read[name] = self._by_name[name].read(raw)
            else:
                read[name] = raw
        return read

    def _moment(self, parts: Sequence[str], text: str) -> float | None:
        forms = (self._by_name[part].written for part in parts)
        return parse_moment(text, next(filter(None, forms), "").split(FORM_SEPARATOR))

    def as_fields(self, columns: Mapping[str, object], kinds: Mapping[str, str]) -> dict[str, object]:
        """Return values of the columns of a catalog as fields of these kinds, read as `prepare` does."""
        return {name: self._as_field(name, raw, kinds.get(name)) for name, raw in columns.items()}

    def _as_field(self, name: str, raw: object, kind: str | None) -> object:
        if not isinstance(raw, str) or kind in (None, "text"):
            return raw
        feature = self._by_name.get(name, self._UNREAD)
        if kind == "number" and (number := number_of(raw, feature.written)) is not None:
            return int(number) if number.is_integer() else number
        if kind == "boolean" and raw.lower() in ("true", "false"):
            return raw.lower() == "true"
        if kind == "texts" and (values := list_of(raw, feature.written or LIST_SEPARATOR)) is not None:
            return values
        return raw

    def _parts_of_date(self, name: str) -> list[str]:
        """The names of the features of a column of dates; none where the column is a feature itself."""
        return [] if name in self._names else [part for part in date_names(name) if part in self._names]

    def encode(self, position: int, features: Mapping[str, object]) -> list[Code]:
        """Return one code, list of codes or number a feature; a feature that is not given counts as unknown.

        Raises EncodingError, with `position`, for features that the tower doesn't have and values that don't
        fit it.
        """
        features = self.from_columns(features)
        codes = [_encoded(feature, features.get(feature.name)) for feature in self.features]
        fitting = [code for code in codes if code is not None]
        if len(fitting) < len(codes) or not features.keys() <= self._names:
            raise first_with_others(self._faults(position, features, codes))
        return fitting

    def _faults(
        self, position: int, features: Mapping[str, object], codes: Sequence[Code | None]
    ) -> Iterator[EncodingError]:
        """Yield an error for each feature that the tower doesn't have or whose value doesn't fit it."""
        unread = f"this model reads no {self._of} features; leave this out"
        if names := self._names - {*self._context}:
            unread = f"this model doesn't read this; it reads {', '.join(sorted(names))}"
        for name in features:
            if name in self._names:
                continue
            if self._parts_of_date(name):
                message = "this is a date; write it like 2024-05-01, or null where it is unknown"
                yield EncodingError(position, f"features.{name}", features[name], message)
            else:
                yield EncodingError(position, f"features.{name}", features[name], unread)
                # The names are listed once: thousands of items in a call may have as many faults each.
                unread = "this model doesn't read this either; leave it out"
        for feature, code in zip(self.features, codes, strict=True):
            if code is None:
                message = f"this feature takes {feature.fits}, or null where it is unknown"
                field = "context" if feature.name in self._context else "features"
                yield EncodingError(position, f"{field}.{feature.name}", features.get(feature.name), message)

    def check_fields(
        self, position: int, features: Mapping[str, object], context: Mapping[str, object]
    ) -> None:
        """Raise EncodingError for `features` of the context, and for other features in `context`."""
        unread = f"the context that this model reads is {', '.join(self._context) or 'none'}; leave this out"
        misplaced = "this is of the request: send it in `context`"
        fields = (("context", context, unread), ("features", features, misplaced))
        faults = [
            EncodingError(position, f"{field}.{name}", value, message)
            for field, values, message in fields
            for name, value in values.items()
            if (name in self._context) == (field == "features")
        ]
        if faults:
            raise first_with_others(faults)

    def inputs(self, rows: Sequence[Mapping[str, object]], first: int = 0) -> Inputs:
        """Return the tower's inputs for B users or items.

        Raises EncodingError as `encode` does, with positions from `first` on.
        """
        return self._columns(
            [self.encode(position, features) for position, features in enumerate(rows, first)]
        )

    def blocks(self, rows: Sequence[Mapping[str, object]]) -> Iterator[tuple[list[int], Inputs]]:
        """Yield the tower's inputs for users or items in blocks, each block with its positions.

        Lists of codes are padded to the longest of their block. Lists of similar lengths share a block,
        with no more zeros than codes and `_FREE_ZEROS` an item, so that memory and time follow the codes.

        Raises EncodingError as `encode` does.
        """
        encoded: dict[int, list[Code]] = {}
        codes = 0
        for position, features in enumerate(rows):
            encoded[position] = self.encode(position, features)
            codes += sum(_lengths(encoded[position]))
            if codes >= _BLOCK_CODES or len(encoded) == _BLOCK_ITEMS or position == len(rows) - 1:
                for block in _alike(encoded):
                    yield block, self._columns([encoded[place] for place in block])
                encoded, codes = {}, 0

    def _columns(self, encoded: Sequence[Sequence[Code]]) -> Inputs:
        return {
            f"feature_{feature.name}": _column(feature, [row[number] for row in encoded])
            for number, feature in enumerate(self.features)
        }

    def readable(self, features: Mapping[str, object]) -> dict[str, object]:
        """Return the features that the tower has, with valid values."""
        features = self.from_columns(features)
        return {
            feature.name: features[feature.name]
            for feature in self.features
            if feature.name in features and _encoded(feature, features[feature.name]) is not None
        }

    def any_known(self, features: Mapping[str, object]) -> bool:
        """Whether a text or a vector among the features has a known part."""
        return any(
            features.get(feature.name) is not None
            and bool(np.any(feature.encode_one(features[feature.name])))
            for feature in self.features
            if feature.of.is_content
        )


def _lengths(encoded: Sequence[Code]) -> list[int]:
    return [len(code) for code in encoded if isinstance(code, list)]


def _alike(encoded: Mapping[int, Sequence[Code]]) -> Iterator[list[int]]:
    """Yield the positions of rows whose lists of codes have similar lengths, the shortest first."""
    lengths = {position: _lengths(row) for position, row in encoded.items()}
    block: list[int] = []
    longest: list[int] = []
    codes = 0
    for position in sorted(lengths, key=lambda place: sum(lengths[place])):
        row_lengths = lengths[position]
        widths = [*map(max, longest or row_lengths, row_lengths)]
        codes += sum(row_lengths)
        if block and (len(block) + 1) * sum(widths) > 2 * codes + _FREE_ZEROS * (len(block) + 1):
            yield block
            block, widths, codes = [], row_lengths, sum(row_lengths)
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
    if feature.form == "number":
        return np.array(encoded, dtype=np.float32)
    if feature.form == "vector":
        return np.stack(encoded)
    if feature.form == "code":
        return np.array(encoded, dtype=np.int64)
    codes = np.zeros((len(encoded), max(1, *map(len, encoded), 1)), dtype=np.int64)
    for position, row in enumerate(encoded):
        codes[position, : len(row)] = row
    return codes
