"""Features of items and users, encoded as numbers for towers."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, TypeAdapter, ValidationError

from turret.data.configuration import FeatureKind
from turret.data.errors import DataError
from turret.data.files import ArrayFile, open_array, save_array

QUERY = "query"
"""The feature that holds the text of a query."""

# Between the text and the context of a query in its id: the unit separator, which no text has.
CONTEXT = "\x1f"


def text_of(query: object) -> str:
    """Return the text of a query by its id, which may have the digest of a context behind it."""
    return str(query).partition(CONTEXT)[0]


SEPARATORS = ">/|"
"""The separators of the levels of a path, with or without spaces around them."""
BETWEEN = " > "
"""The separator in `levels`."""
MOST_LEVELS = 10
"""The levels of a path that are read; further ones are left out."""

LIST_SEPARATOR = "|"
"""The separator of lists in texts where no other is stated or found."""

FORM_SEPARATOR = "|"
"""The separator of the formats of dates in `Feature.written`."""

SIGNS = r"[\s\u00a0\u202f'\u2019%]|[$€£¥₹]|\b(?:EUR|USD|GBP|CHF|SEK|NOK|DKK|PLN|JPY|CNY|INR|kr|zł|Fr\.)"
"""A pattern of signs in texts of numbers that are left out, for `re` and for Polars."""
_SIGN = re.compile(SIGNS)
_WORD = re.compile(r"\w+")
_AS_SLASHES = str.maketrans(SEPARATORS, "/" * len(SEPARATORS))


def levels(path: str) -> list[str]:
    """Return a path and those above it, the highest first.

    >>> levels("Women > Shoes/Boots")
    ['Women', 'Women > Shoes', 'Women > Shoes > Boots']
    """
    # An expression of the blanks around a separator would try those of a long run again from each of them;
    # one of the separators alone takes twice as long, and a path of a client may hold nothing else.
    parts = list(islice(filter(None, map(str.strip, path.translate(_AS_SLASHES).split("/"))), MOST_LEVELS))
    return [BETWEEN.join(parts[:count]) for count in range(1, len(parts) + 1)]


def number_form(decimal: str) -> str:
    """The pattern of a number without signs; the mark that is not `decimal`, "." or ",", is of thousands."""
    thousands = "." if decimal == "," else ","
    grouped = rf"[0-9]{{1,3}}(?:[{thousands}][0-9]{{3}})+(?:[{decimal}][0-9]*)?"
    simple = rf"(?:[0-9]+(?:[{decimal}][0-9]*)?|[{decimal}][0-9]+)(?:[eE][+-]?[0-9]+)?"
    return rf"[+-]?(?:{grouped}|{simple})"


_FORMS = {decimal: re.compile(number_form(decimal)) for decimal in ".,"}


def number_of(text: str, mark: str = "") -> float | None:
    """Read a text with one number, as a column of them is read; None if the decimal mark can't be told.

    A stated decimal `mark` tells it.

    >>> number_of("€ 1,299.00"), number_of("12,5 %"), number_of("1.299")
    (1299.0, 12.5, None)
    """
    bare, found = _SIGN.sub("", text), set()
    for decimal, thousands in (".,", ",."):
        if mark in ("", decimal) and _FORMS[decimal].fullmatch(bare):
            found.add(float(bare.replace(thousands, "").replace(decimal, ".")))
    value = found.pop() if len(found) == 1 else math.inf
    return value if math.isfinite(value) else None


def list_of(text: str, separator: str) -> list[str] | None:
    """Read a list in JSON, or values between separators; None for a text in brackets that is no JSON.

    >>> list_of("red; blue", ";"), list_of('["red", "blue"]', ";")
    (['red', 'blue'], ['red', 'blue'])
    """
    values = text.split(separator)
    if text.startswith("[") and text.endswith("]"):
        try:
            values = json.loads(text)  # brackets hold a list
        except (ValueError, RecursionError):
            return None
    printed = (str(value).strip() for value in values if value is not None)
    return [value for value in printed if value]


def date_features(name: str, days: float) -> dict[str, object]:
    """The features of a date, in days since 1970: the age of an item, up to a constant, and its season."""
    month = np.datetime64(int(days), "D").astype("datetime64[M]").astype(int) % 12 + 1
    return dict(zip(date_names(name), (days, str(month)), strict=True))


def date_names(name: str) -> tuple[str, str]:
    """The names of the two features of a date."""
    return f"{name}_days", f"{name}_month"


class Feature(BaseModel, frozen=True, extra="forbid"):
    """One feature: its kind, and the encoding of raw values as codes or a number.

    - `category`: one of `values`; its code is the index in `values` plus one, 0 if missing or unknown.
    - `multi`: any number of `values`, each counted once; a list of such codes without unknown values.
    - `path`: a text such as "Women > Shoes"; the codes of its levels, "Women" and "Women > Shoes".
    - `text`: a text; the codes of its letter trigrams (`trigrams`), and with `words` of its whole words too,
      without unknown ones.
    - `number`: `(x - mean) / deviation`; 0 (the mean) if missing.
    - `vector`: `width` numbers, each over `deviation`; NaN if missing.

    `written` is how texts of the catalog have it, where not as usual: the decimal comma of a number, the
    separator of a list, and the formats of the date behind the number of days.
    """

    name: str
    kind: FeatureKind
    values: tuple[str, ...] = ()
    mean: float = 0.0
    deviation: float = 1.0
    words: bool = False
    width: int = 0
    written: str = ""

    @property
    def size(self) -> int:
        """The number of codes, 0 included; of a vector its numbers."""
        return self.width or len(self.values) + 1

    @cached_property
    def _codes(self) -> dict[str, int]:
        return {value: code for code, value in enumerate(self.values, start=1)}

    def read(self, text: str) -> object:
        """A text of the catalog as `prepare` reads it: a number or a list where it is one, else the text."""
        if self.kind == "number":
            number = number_of(text, self.written if self.written == "," else "")
            return text if number is None else number
        if self.kind == "multi":
            values = list_of(text, self.written or LIST_SEPARATOR)
            return text if values is None else values
        return text

    def encode_one(self, raw: object) -> int | list[int] | float | NDArray[np.float32]:
        """Encode one raw value, or None for a missing one.

        Returns a code for a category, a list of codes for multi, path and text, a float for a number, float32
        [width] for a vector. Raises DataError for a value of the wrong type.
        """
        if self.kind == "vector":
            return self._encode_vector(raw)
        if self.kind == "number":
            if raw is None:
                return 0.0
            if isinstance(raw, bool) or not isinstance(raw, int | float) or not math.isfinite(raw):
                raise self._invalid(raw, "a finite number")
            return (raw - self.mean) / self.deviation
        if self.kind == "category":
            return 0 if raw is None else self._codes.get(self._one_value(raw), 0)
        return [code for value in self._several_values(raw) if (code := self._codes.get(value, 0))]

    def _encode_vector(self, raw: object) -> NDArray[np.float32]:
        if raw is None:
            return np.full(self.width, np.nan, dtype=np.float32)
        try:
            numbers = np.asarray(raw, dtype=np.float32)
        except (TypeError, ValueError):
            numbers = np.empty(0, dtype=np.float32)
        if numbers.shape != (self.width,) or isinstance(raw, str) or not np.isfinite(numbers).all():
            raise self._invalid(raw, self.fits)
        return numbers / np.float32(self.deviation)

    @property
    def fits(self) -> str:
        """Describe the values of a vector."""
        return f"a list of {self.width} finite numbers"

    def _one_value(self, raw: object) -> str:
        if isinstance(raw, bool):
            return str(raw).lower()
        if not isinstance(raw, str | int | float):
            raise self._invalid(raw, "one value (text or a number)")
        return str(int(raw)) if isinstance(raw, float) and raw.is_integer() else str(raw)

    def _several_values(self, raw: object) -> list[str]:
        if raw is None:
            return []
        if self.kind in ("text", "path"):
            if not isinstance(raw, str):
                raise self._invalid(raw, "a text")
            return grams(raw, self.words) if self.kind == "text" else levels(raw)
        if isinstance(raw, str) or not isinstance(raw, Sequence):
            raise self._invalid(raw, "a list of values")
        return [*dict.fromkeys(map(self._one_value, raw))]

    def _invalid(self, raw: object, expected: str) -> DataError:
        shown = f"{str(raw)[:80]!r}..." if len(str(raw)) > 80 else repr(raw)
        return DataError(f"feature {self.name!r} can't be {shown}: give {expected}, or null if unknown")


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
        """Yield the vectors in their type, some thousand rows at a time; NaN for missing ones."""
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


@dataclass(frozen=True)
class Features:
    """The encoded features of `count` items or users, by row.

    `columns` has one entry per feature: int32 [count] codes of a category, float32 [count] of a number,
    a Bag of `count` rows of a multi or text feature; of a vector, float16 or float32 [count, width] with NaN
    for missing ones, or VectorRows before it is saved.
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
        values: dict[str, Any] = {}
        for feature in self.features:
            name, column = feature.name, self.columns[feature.name]
            if isinstance(column, Bag):
                found = [feature.values[code - 1] for code in column.row(row)]
                if feature.kind == "multi":
                    values[name] = found
                elif feature.kind == "path" and found:
                    values[name] = max(found, key=len)
            elif isinstance(column, np.ndarray) and feature.kind == "number":
                values[name] = float(column[row]) * feature.deviation + feature.mean
            elif isinstance(column, np.ndarray) and feature.kind == "category" and column[row]:
                values[name] = feature.values[column[row] - 1]
        return values | self.vectors(row)

    def vectors(self, row: int) -> dict[str, list[float]]:
        """Return the vectors of one row, of saved features, as lists; missing ones are left out."""
        columns = {one.name: self.columns[one.name] for one in self.features if one.kind == "vector"}
        return {
            name: column[row].tolist()
            for name, column in columns.items()
            if isinstance(column, np.ndarray) and np.isfinite(column[row, 0])
        }

    def save(self, folder: Path) -> None:
        """Write `features.json` and the arrays, numbered in the order of the features, into `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        # Fields that only other features have are not stored, so that fingerprints stay.
        described = [
            one.model_dump(exclude={name for name in ("words", "width", "written") if not getattr(one, name)})
            for one in self.features
        ]
        text = json.dumps({"count": self.count, "features": described}, ensure_ascii=False)
        (folder / "features.json").write_text(text, encoding="utf-8")
        for number, feature in enumerate(self.features):
            column = self.columns[feature.name]
            if isinstance(column, Bag):
                save_array(folder / f"{number}.values.npy", column.values)
                save_array(folder / f"{number}.offsets.npy", column.offsets)
            elif isinstance(column, VectorRows):
                column.save(folder / f"{number}.npy")
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
        columns = {feature.name: _open_column(folder, n, feature) for n, feature in enumerate(features)}
        return cls(count, features, columns)


def _open_column(folder: Path, number: int, feature: Feature) -> Column:
    path = folder / f"{number}.npy"
    if feature.kind == "category":
        return open_array(path, "int32")
    if feature.kind == "number":
        return open_array(path, "float32")
    if feature.kind == "vector":
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
