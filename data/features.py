"""Features of items and users, encoded as numbers for towers."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, TypeAdapter, ValidationError

from turret.data.errors import DataError
from turret.data.files import open_array, save_array

QUERY = "query"
"""The feature that holds the text of a query."""

FeatureKind = Literal["text", "category", "multi", "number"]

_WORD = re.compile(r"\w+")


class Feature(BaseModel, frozen=True, extra="forbid"):
    """One feature: its kind, and the encoding of raw values as codes or a number.

    - `category`: one of `values`; its code is the index in `values` plus one, 0 if missing or unknown.
    - `multi`: any number of `values`; a list of such codes without unknown values.
    - `text`: a text; the codes of its letter trigrams (`trigrams`), and with `words` of its whole words too,
      without unknown ones.
    - `number`: `(x - mean) / deviation`; 0 (the mean) if missing.
    """

    name: str
    kind: FeatureKind
    values: tuple[str, ...] = ()
    mean: float = 0.0
    deviation: float = 1.0
    words: bool = False

    @property
    def size(self) -> int:
        """The number of codes, 0 included."""
        return len(self.values) + 1

    @cached_property
    def _codes(self) -> dict[str, int]:
        return {value: code for code, value in enumerate(self.values, start=1)}

    def encode_one(self, raw: object) -> int | list[int] | float:
        """Encode one raw value, or None for a missing one.

        Returns a code for a category, a list of codes for multi and text, a float for a number.
        Raises DataError for a value of the wrong type.
        """
        if self.kind == "number":
            return self._encode_number(raw)
        if self.kind == "category":
            return 0 if raw is None else self._codes.get(self._one_value(raw), 0)
        return [code for value in self._several_values(raw) if (code := self._codes.get(value, 0))]

    def _encode_number(self, raw: object) -> float:
        if raw is None:
            return 0.0
        if isinstance(raw, bool) or not isinstance(raw, int | float) or not math.isfinite(raw):
            raise self._invalid(raw, "a finite number")
        return (raw - self.mean) / self.deviation

    def _one_value(self, raw: object) -> str:
        if isinstance(raw, bool):
            return str(raw).lower()
        if not isinstance(raw, str | int | float):
            raise self._invalid(raw, "one value (text or a number)")
        return str(int(raw)) if isinstance(raw, float) and raw.is_integer() else str(raw)

    def _several_values(self, raw: object) -> list[str]:
        if raw is None:
            return []
        if self.kind == "text":
            if not isinstance(raw, str):
                raise self._invalid(raw, "a text")
            return grams(raw, self.words)
        if isinstance(raw, str) or not isinstance(raw, Sequence):
            raise self._invalid(raw, "a list of values")
        return [self._one_value(value) for value in raw]

    def _invalid(self, raw: object, expected: str) -> DataError:
        return DataError(f"feature {self.name!r} can't be {raw!r}: give {expected}, or null if unknown")


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


Column = NDArray[Any] | Bag


@dataclass(frozen=True)
class Features:
    """The encoded features of `count` items or users, by row.

    `columns` has one entry per feature: int32 [count] codes of a category, float32 [count] of a number,
    a Bag of `count` rows of a multi or text feature.
    """

    count: int
    features: tuple[Feature, ...]
    columns: Mapping[str, Column]

    def __post_init__(self) -> None:
        names = [feature.name for feature in self.features]
        if len(set(names)) != len(names) or set(names) != set(self.columns):
            raise DataError(
                f"features {names} and columns {list(self.columns)} must be the same distinct names"
            )
        for name, column in self.columns.items():
            if len(column) != self.count:
                raise DataError(f"feature {name!r} has {len(column)} rows instead of {self.count}")

    def raw(self, row: int) -> dict[str, Any]:
        """Decode the features of one row into the form of a request.

        Missing categories are left out, and so are texts, whose trigrams can't be decoded.
        """
        values: dict[str, Any] = {}
        for feature in self.features:
            column = self.columns[feature.name]
            if isinstance(column, Bag):
                if feature.kind == "multi":
                    values[feature.name] = [feature.values[code - 1] for code in column.row(row)]
            elif feature.kind == "number":
                values[feature.name] = float(column[row]) * feature.deviation + feature.mean
            elif column[row]:
                values[feature.name] = feature.values[column[row] - 1]
        return values

    def save(self, folder: Path) -> None:
        """Write `features.json` and the arrays, numbered in the order of the features, into `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        # What only some features have is left out of the others: their fingerprint stays.
        described = [one.model_dump(exclude=None if one.words else {"words"}) for one in self.features]
        stored = {"count": self.count, "features": described}
        (folder / "features.json").write_text(json.dumps(stored, ensure_ascii=False), encoding="utf-8")
        for number, feature in enumerate(self.features):
            column = self.columns[feature.name]
            if isinstance(column, Bag):
                save_array(folder / f"{number}.values.npy", column.values)
                save_array(folder / f"{number}.offsets.npy", column.offsets)
            else:
                save_array(folder / f"{number}.npy", column)

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
        columns = {feature.name: _open_column(folder, n, feature.kind) for n, feature in enumerate(features)}
        return cls(count, features, columns)


def _open_column(folder: Path, number: int, kind: FeatureKind) -> Column:
    if kind == "category":
        return open_array(folder / f"{number}.npy", "int32")
    if kind == "number":
        return open_array(folder / f"{number}.npy", "float32")
    bag = Bag(
        open_array(folder / f"{number}.values.npy", "int32"),
        open_array(folder / f"{number}.offsets.npy", "int64"),
    )
    if bag.offsets[0] != 0 or bag.offsets[-1] != len(bag.values) or (np.diff(bag.offsets) < 0).any():
        raise DataError(f"{folder}/{number}.offsets.npy does not fit its values; prepare the data again")
    return bag


def grams(text: str, words: bool) -> list[str]:
    """The letter trigrams of a text and, with `words`, behind them its words, each marked as "=good"."""
    found = trigrams(text)
    return [*found, *(f"={word}" for word in _WORD.findall(text.casefold()))] if words else found


def trigrams(text: str) -> list[str]:
    """Split `text` into the letter trigrams of its words, in order and with repeats.

    Every word is folded to lower case, set between '#' marks and cut into windows of three letters:
    "good" gives "#go", "goo", "ood", "od#" (Huang et al. 2013, "Learning deep structured semantic models
    for web search using clickthrough data", section 3.2). A word is a run of letters, digits and
    underscores; a word of one letter gives one trigram.
    """
    marked = (f"#{word}#" for word in _WORD.findall(text.casefold()))
    return [word[start : start + 3] for word in marked for start in range(len(word) - 2)]
