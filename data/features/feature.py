"""A feature of items or users, and the kinds of features: how values are read, and encoded for towers.

A package adds a kind by an entry point of the group `turret.feature_kinds` that names a subclass of
`FeatureKind`.
"""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, field_validator

from turret.data.errors import DataError
from turret.data.extras import registry
from turret.data.features.texts import LIST_SEPARATOR, grams, levels, list_of, number_of

GROUP = "turret.feature_kinds"
Form = Literal["code", "codes", "number", "vector"]
"""The input of a tower for a feature: int64 [B] of one code, int64 [B, M] of codes, float32 [B] of a number,
or float32 [B, width] of a vector. Code 0 and NaN in a vector are no value."""
Reading = Literal["values", "texts", "lists", "numbers", "vectors"]
"""The values of a column: printed values (true and false in lower case), texts as they are, lists of texts,
floats (dates are days since 1970), or ready vectors."""
_ONE_VALUE = "one value (text or a number)"
Code = int | list[int] | float | NDArray[np.float32]


class Feature(BaseModel, frozen=True, extra="forbid"):
    """One feature: its kind, and the parameters by which the kind encodes raw values.

    - `values` have the codes 1, 2, ...; 0 stands for no value, or for an unknown value.
    - `mean` and `deviation` standardise numbers.
    - `words`: whether a text has codes of whole words too.
    - `width`: the numbers of a vector.
    - `written` describes an unusual form of the texts in the catalog: the decimal comma of a number, the
      separator of a list, or the formats of the date behind a number of days.
    """

    name: str
    kind: str
    values: tuple[str, ...] = ()
    mean: float = 0.0
    deviation: float = 1.0
    words: bool = False
    width: int = 0
    written: str = ""

    @field_validator("kind")
    @classmethod
    def _is_known(cls, name: str) -> str:
        return kind_named(name).name

    @property
    def of(self) -> "FeatureKind":
        """The kind of the feature."""
        return KINDS[self.kind]

    @property
    def form(self) -> Form:
        """The input of a tower."""
        return self.of.form

    @property
    def size(self) -> int:
        """The number of codes, with code 0; for a vector, its width."""
        return self.width or len(self.values) + 1

    @cached_property
    def codes(self) -> dict[str, int]:
        """The code of each value."""
        return {value: code for code, value in enumerate(self.values, start=1)}

    def read(self, text: str) -> object:
        """Read a text of the catalog as `prepare` does: as a number or a list if it is one, else as text."""
        return self.of.read(self, text)

    def encode_one(self, raw: object) -> Code:
        """Encode one raw value, None if missing, in the form of the feature; a vector as float32 [width].

        Raises DataError for a value of the wrong type.
        """
        return self.of.encode(self, raw)

    @property
    def fits(self) -> str:
        """The values that the feature takes, for a message."""
        return self.of.fits(self)

    def invalid(self, raw: object, fits: str = "") -> DataError:
        """Return the error for an invalid value, or for a part of a value; `fits` describes a valid part."""
        shown = f"{str(raw)[:80]!r}..." if len(str(raw)) > 80 else repr(raw)
        return DataError(
            f"feature {self.name!r} can't be {shown}: give {fits or self.fits}, or null if unknown"
        )


class FeatureKind:
    """A kind of features; a subclass has the methods that differ.

    Attributes:
        name: the name of the kind, as in `--item-category`.
        reading: the values of its columns.
        form: the input of a tower.
        noun: the name of the things that the size of a feature counts.
        is_content: whether features of the kind describe the content of an item, as texts and ready vectors
            do: both towers may begin alike with such a feature, and a query whose content is known needs no
            history.
    """

    name: ClassVar[str]
    reading: ClassVar[Reading]
    form: ClassVar[Form]
    noun: ClassVar[str] = "values"
    is_content: ClassVar[bool] = False

    def fit(self, name: str, raw: Sequence[Any], shared: tuple[str, ...] | None) -> Feature:
        """Make the feature of a column of raw values, None for missing values.

        `shared` are the trigrams and words of all texts, where they are shared.
        """
        raise NotImplementedError

    def read(self, feature: Feature, text: str) -> object:
        """Read a text of a catalog as a raw value; unchanged if the value is a text or can't be read."""
        return text

    def encode(self, feature: Feature, raw: object) -> Code:
        """Encode a raw value as `Feature.encode_one` does."""
        raise NotImplementedError

    def decode(self, feature: Feature, code: Any) -> object:
        """Return a raw value with this code of a row of its column; None if it is missing or can't be told.

        A bundle records requests with the features of users, so a kind of users' features needs this method.
        """
        return None

    def fits(self, feature: Feature) -> str:
        """Describe the values that a feature takes, for a message."""
        raise NotImplementedError


class CategoryKind(FeatureKind):
    """One of several values."""

    name = "category"
    reading = "values"
    form = "code"

    def fit(self, name: str, raw: Sequence[Any], shared: tuple[str, ...] | None) -> Feature:
        """Make the feature of the distinct values, in order."""
        return Feature(name=name, kind=self.name, values=tuple(sorted({*raw} - {None, ""})))

    def encode(self, feature: Feature, raw: object) -> int:
        """Return the code of the value."""
        return 0 if raw is None else feature.codes.get(_printed(feature, raw), 0)

    def decode(self, feature: Feature, code: Any) -> object:
        """Return the value."""
        return feature.values[code - 1] if code else None

    def fits(self, feature: Feature) -> str:
        """Describe one value, which may be a number."""
        return _ONE_VALUE


class _Parts(FeatureKind):
    """A value of several parts, encoded as the list of the codes of its known parts."""

    form = "codes"

    def parts(self, feature: Feature, raw: Any) -> list[str]:
        """Return the parts of a value. Raises DataError for a value of another type."""
        if not isinstance(raw, str):
            raise feature.invalid(raw)
        return self.of_text(raw, feature.words)

    def of_text(self, text: str, words: bool) -> list[str]:
        """Return the parts of a text."""
        raise NotImplementedError

    def fit(self, name: str, raw: Sequence[Any], shared: tuple[str, ...] | None) -> Feature:
        """Make the feature of the distinct parts of all values, in order."""
        empty = Feature(name=name, kind=self.name)
        parts = {part for value in raw if value is not None for part in self.parts(empty, value)}
        return Feature(name=name, kind=self.name, values=tuple(sorted(parts)))

    def encode(self, feature: Feature, raw: object) -> list[int]:
        """Return the codes of the known parts."""
        parts = [] if raw is None else self.parts(feature, raw)
        return [code for part in parts if (code := feature.codes.get(part, 0))]


class MultiKind(_Parts):
    """Any number of values, each counted once."""

    name = "multi"
    reading = "lists"

    def read(self, feature: Feature, text: str) -> object:
        """Read a list in JSON, or values between separators."""
        values = list_of(text, feature.written or LIST_SEPARATOR)
        return text if values is None else values

    def parts(self, feature: Feature, raw: Any) -> list[str]:
        """Return the distinct values."""
        if isinstance(raw, str) or not isinstance(raw, Sequence):
            raise feature.invalid(raw)
        return [*dict.fromkeys(_printed(feature, value) for value in raw)]

    def decode(self, feature: Feature, code: Any) -> object:
        """Return the known values."""
        return [feature.values[number - 1] for number in code]

    def fits(self, feature: Feature) -> str:
        """Describe a list, which may have one value."""
        return "a list of values"


class PathKind(_Parts):
    """A text such as "Women > Shoes"; its parts are its levels, "Women" and "Women > Shoes"."""

    name = "path"
    reading = "texts"
    noun = "levels"

    def of_text(self, text: str, words: bool) -> list[str]:
        """Return the path and the paths above it."""
        return levels(text)

    def decode(self, feature: Feature, code: Any) -> object:
        """Return the longest known level."""
        return max((feature.values[number - 1] for number in code), key=len, default=None)

    def fits(self, feature: Feature) -> str:
        """Describe a path with an example."""
        return "a text of levels, such as Women > Shoes"


class TextKind(_Parts):
    """A text; its parts are its letter trigrams and, with `words`, its whole words."""

    name = "text"
    reading = "texts"
    noun = "grams"
    is_content = True

    def of_text(self, text: str, words: bool) -> list[str]:
        """Return the grams, with repeats."""
        return grams(text, words)

    def fit(self, name: str, raw: Sequence[Any], shared: tuple[str, ...] | None) -> Feature:
        """Make the feature of the trigrams of the texts, or of the grams that all texts share."""
        if shared is None:
            return super().fit(name, raw, shared)
        return Feature(name=name, kind=self.name, values=tuple(sorted(shared)), words=True)

    def fits(self, feature: Feature) -> str:
        """Describe any text."""
        return "a text"


class NumberKind(FeatureKind):
    """A number, as `(x - mean) / deviation`; 0 (the mean) if missing."""

    name = "number"
    reading = "numbers"
    form = "number"

    def fit(self, name: str, raw: Sequence[Any], shared: tuple[str, ...] | None) -> Feature:
        """Make the feature with the mean and deviation of the known numbers."""
        numbers = np.array([value for value in raw if value is not None] or [0.0])
        mean, deviation = float(numbers.mean()), float(numbers.std()) or 1.0
        return Feature(name=name, kind=self.name, mean=mean, deviation=deviation)

    def read(self, feature: Feature, text: str) -> object:
        """Read the number in a text such as "€ 12.50"."""
        number = number_of(text, feature.written if feature.written == "," else "")
        return text if number is None else number

    def encode(self, feature: Feature, raw: object) -> float:
        """Return the standardised number."""
        if raw is None:
            return 0.0
        if isinstance(raw, bool) or not isinstance(raw, int | float) or not math.isfinite(raw):
            raise feature.invalid(raw)
        return (raw - feature.mean) / feature.deviation

    def decode(self, feature: Feature, code: Any) -> object:
        """Return the number."""
        return float(code) * feature.deviation + feature.mean

    def fits(self, feature: Feature) -> str:
        """Describe a number with an example of a text."""
        return 'a finite number in a usual range, or a text with one, such as "€ 12.50"'


class VectorKind(FeatureKind):
    """A ready vector of `width` numbers, each divided by `deviation`; NaN if missing."""

    name = "vector"
    reading = "vectors"
    form = "vector"
    noun = "numbers"
    is_content = True

    def encode(self, feature: Feature, raw: object) -> NDArray[np.float32]:
        """Return the numbers divided by their deviation."""
        if raw is None:
            return np.full(feature.width, np.nan, dtype=np.float32)
        try:
            numbers = np.asarray(raw, dtype=np.float32)
        except (TypeError, ValueError):
            numbers = np.empty(0, dtype=np.float32)
        if numbers.shape != (feature.width,) or isinstance(raw, str) or not np.isfinite(numbers).all():
            raise feature.invalid(raw)
        return numbers / np.float32(feature.deviation)

    def decode(self, feature: Feature, code: Any) -> object:
        """Return the numbers as they were given."""
        return code.tolist() if np.isfinite(code[0]) else None

    def fits(self, feature: Feature) -> str:
        """Describe a vector with its width."""
        return f"a list of {feature.width} finite numbers"


def _printed(feature: Feature, raw: object) -> str:
    """Print a value as its column is printed: whole floats become integers."""
    if isinstance(raw, bool):
        return str(raw).lower()
    if not isinstance(raw, str | int | float):
        raise feature.invalid(raw, _ONE_VALUE)
    return str(int(raw)) if isinstance(raw, float) and raw.is_integer() else str(raw)


# The features of an item or user, and so their arrays, are in this order.
OURS: tuple[FeatureKind, ...] = (
    TextKind(),
    CategoryKind(),
    MultiKind(),
    NumberKind(),
    PathKind(),
    VectorKind(),
)
KINDS = {
    name: kind() if isinstance(kind, type) else kind
    for name, kind in registry(OURS, GROUP, FeatureKind, DataError, lambda kind: kind.name).items()
}


def kind_named(name: str) -> FeatureKind:
    """Return the kind of a name. Raises ValueError for a name that no installed package has."""
    if name not in KINDS:
        raise ValueError(
            f"there is no kind of features {name!r}: there are {', '.join(KINDS)}, and those of packages "
            f"with an entry point of {GROUP}"
        )
    return KINDS[name]
