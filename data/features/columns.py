"""The encoded features of items or users as arrays, in memory and in a folder."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from turret.data.errors import DataError
from turret.data.features.feature import Feature
from turret.data.files import ArrayFile, open_array


@dataclass(frozen=True)
class Bag:
    """A variable number of codes per row: row r has `values[offsets[r]:offsets[r + 1]]`.

    `values` is int32, `offsets` int64 [rows + 1].
    """

    values: NDArray[np.int32]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, row: int) -> NDArray[np.int32]:
        """Return the codes of one row."""
        return self.values[self.offsets[row] : self.offsets[row + 1]]


_ROWS_A_BLOCK = 8192


@dataclass(frozen=True)
class VectorRows:
    """Vectors that are not read yet: row r is `source[rows[r]]`, and missing where `rows[r]` is -1.

    `source` is float16 or float32 [R, W], mapped or in memory; `rows` is int64 [N].
    """

    source: NDArray[Any]
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, rows: slice) -> "VectorRows":
        """Return some of the rows."""
        return VectorRows(self.source, self.rows[rows])

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Yield the vectors in their type, some thousand rows at a time; NaN for missing vectors."""
        for start in range(0, len(self.rows), _ROWS_A_BLOCK):
            rows = self.rows[start : start + _ROWS_A_BLOCK]
            block = self.source[np.maximum(rows, 0)]
            block[rows < 0] = np.nan
            yield block

    def save(self, path: Path) -> None:
        """Write the vectors to the `.npy` file `path`, a block at a time."""
        with closing(ArrayFile(path, self.source.dtype, self.source.shape[1])) as file:
            for block in self.blocks():
                file.write(block)


Column = NDArray[Any] | Bag | VectorRows


def encoded(feature: Feature, raw: Sequence[Any]) -> Column:
    """Encode a column of raw values, None for missing values."""
    codes: list[Any] = [*map(feature.encode_one, raw)]
    if feature.form == "codes":
        offsets = np.cumsum([0, *map(len, codes)], dtype=np.int64)
        return Bag(np.array([*chain.from_iterable(codes)], dtype=np.int32), offsets)
    if feature.form == "code":
        return np.array(codes, dtype=np.int32)
    shape = (len(codes), feature.width) if feature.form == "vector" else len(codes)
    return np.array(codes, dtype=np.float32).reshape(shape)


@dataclass(frozen=True)
class Features:
    """The encoded features of `count` items or users, by row.

    `columns` has one entry per feature, by its form: int32 [count] for a code, float32 [count] for a number,
    a Bag of `count` rows for codes; for a vector float16 or float32 [count, width] with NaN for missing ones,
    or VectorRows before it is saved.
    """

    count: int
    features: tuple[Feature, ...]
    columns: Mapping[str, Column]

    def __post_init__(self) -> None:
        for name, column in self.columns.items():
            if len(column) != self.count:
                raise DataError(f"feature {name!r} has {len(column)} rows instead of {self.count}")

    def raw(self, row: int) -> dict[str, Any]:
        """Decode the features of one row into the form of a request.

        Missing categories are left out, and so are texts, whose trigrams can't be decoded.
        """
        return self._decoded(row, self.features)

    def vectors(self, row: int) -> dict[str, Any]:
        """Return the ready vectors of one row, of saved features, as lists; missing ones are left out."""
        return self._decoded(row, [feature for feature in self.features if feature.of.reading == "vectors"])

    def _decoded(self, row: int, features: Sequence[Feature]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for feature in features:
            column = self.columns[feature.name]
            if isinstance(column, VectorRows):
                continue
            code = column.row(row) if isinstance(column, Bag) else column[row]
            values[feature.name] = feature.of.decode(feature, code)
        return {name: value for name, value in values.items() if value is not None}

    def save(self, folder: Path) -> None:
        """Write `features.json` and the arrays, numbered in the order of the features, into `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        # Fields that a feature does not use are not stored, so that fingerprints stay the same.
        described = [
            feature.model_dump(
                exclude={name for name in ("words", "width", "written") if not getattr(feature, name)}
            )
            for feature in self.features
        ]
        text = json.dumps({"count": self.count, "features": described}, ensure_ascii=False)
        (folder / "features.json").write_text(text, encoding="utf-8")
        for number, feature in enumerate(self.features):
            column = self.columns[feature.name]
            if isinstance(column, Bag):
                np.save(folder / f"{number}.values.npy", column.values, allow_pickle=False)
                np.save(folder / f"{number}.offsets.npy", column.offsets, allow_pickle=False)
            elif isinstance(column, VectorRows):
                column.save(folder / f"{number}.npy")
            else:
                np.save(folder / f"{number}.npy", column, allow_pickle=False)

    @classmethod
    def open(cls, folder: Path) -> "Features":
        """Memory-map a folder of `save`. Raises DataError when files are missing or inconsistent."""
        path = folder / "features.json"
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            features = TypeAdapter(tuple[Feature, ...]).validate_python(stored["features"])
            count = int(stored["count"])
        except FileNotFoundError:
            raise DataError(f"{path} is missing; prepare the data again") from None
        except (ValueError, KeyError, TypeError, ValidationError) as error:
            raise DataError(f"{path} does not describe features ({error}); prepare the data again") from None
        columns = {feature.name: _open_column(folder, n, feature) for n, feature in enumerate(features)}
        return cls(count, features, columns)


def _open_column(folder: Path, number: int, feature: Feature) -> Column:
    path = folder / f"{number}.npy"
    if feature.form == "code":
        return open_array(path, "int32")
    if feature.form == "number":
        return open_array(path, "float32")
    if feature.form == "vector":
        vectors = open_array(path, "float16", "float32")
        if vectors.ndim != 2 or vectors.shape[1] != feature.width:
            raise DataError(
                f"{path} does not hold vectors of {feature.width} numbers; prepare the data again"
            )
        return vectors
    bag = Bag(
        open_array(folder / f"{number}.values.npy", "int32"),
        open_array(folder / f"{number}.offsets.npy", "int64"),
    )
    if bag.offsets[0] != 0 or bag.offsets[-1] != len(bag.values) or (np.diff(bag.offsets) < 0).any():
        raise DataError(f"{folder}/{number}.offsets.npy does not fit its values; prepare the data again")
    return bag
