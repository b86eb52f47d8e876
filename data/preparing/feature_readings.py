"""The columns of an items or users file as features: as named, or as their values suggest.

A guess is told in a sentence, with the option that says otherwise; naming any feature ends all guessing.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from turret.data.errors import ColumnError
from turret.data.features import FeatureKind
from turret.data.preparing.columns import Role, require
from turret.data.preparing.encoding import as_lists, as_numbers, element_type, is_printable
from turret.data.preparing.values import (
    days,
    json_lists,
    list_separator,
    numbers,
    truth_values,
    without_nulls,
)
from turret.data.reading.schema import NULLS, FeatureColumns, FormatSettings, nulls_of

# Names that say more than values do.
_USUAL: dict[FeatureKind, tuple[str, ...]] = {
    "text": ("title", "name", "headline", "description"),
    "category": ("category", "genre", "gender", "age", "age_group", "occupation", "country"),
    "multi": ("genres", "categories", "tags"),
}
_KIND_OF_NAME = {name: kind for kind, names in _USUAL.items() for name in names}
# A column of more distinct values than this share of its rows says nothing about the others.
_MOST_VALUES = 0.5
_FEWEST_ROWS = 20
_LEFT_OUT = "ids, links, or values that say nothing about other rows"


@dataclass
class FeatureReadings:
    """Columns with the types of their features, the chosen ones by kind, and a sentence on each choice."""

    frame: pl.DataFrame
    chosen: FeatureColumns
    notes: list[str] = field(default_factory=list)


def read_features(
    frame: pl.DataFrame, chosen: FeatureColumns | None, where: Path, role: Role, settings: FormatSettings
) -> FeatureReadings:
    """Read the chosen columns of `frame`, whose rows are items or users, or guess which are features.

    Raises ColumnError for a chosen column that does not exist, or whose values are not of its kind.
    """
    reader = _Reader(where, role, settings, frame.height)
    if chosen is None:
        return reader.guessed(frame)
    return reader.named(frame, chosen)


@dataclass
class _Reader:
    where: Path
    role: Role
    settings: FormatSettings
    count: int
    notes: list[str] = field(default_factory=list)

    def named(self, frame: pl.DataFrame, chosen: FeatureColumns) -> FeatureReadings:
        for kind, name in chosen.by_kind():
            require(name, frame.columns, str(self.where), f"{kind} feature")
            values = self._known(frame[name])
            if kind == "number":
                values = self._number(values)
                self._doubt_number(values, frame[name])
            elif kind == "multi":
                values = self._lists(values)
            elif kind == "category":
                self._doubt_category(values)
            else:
                self._doubt_text(values)
            frame = frame.with_columns(values)
        return FeatureReadings(frame, chosen, self.notes)

    def guessed(self, frame: pl.DataFrame) -> FeatureReadings:
        kinds: dict[FeatureKind, list[str]] = {"text": [], "category": [], "multi": [], "number": []}
        left_out = []
        for name in frame.columns:
            values = self._known(frame[name])
            columns = self._guess(values)
            if not columns:
                left_out.append(name)
            for kind, column in columns:
                kinds[kind].append(column.name)
                frame = frame.with_columns(column)
        told = [f"{name} ({kind})" for kind, names in kinds.items() for name in names]
        if told or left_out:
            rest = f"; left out: {', '.join(left_out)} ({_LEFT_OUT})" if left_out else ""
            self.notes.insert(
                0,
                f"{self.where.name}: read as features are {', '.join(told) or 'no columns'}{rest}; name them "
                f"yourself with {self._options()}",
            )
        chosen = FeatureColumns(**{kind: tuple(names) for kind, names in kinds.items()})
        return FeatureReadings(frame, chosen, self.notes)

    def _known(self, values: pl.Series) -> pl.Series:
        """The values, null where a text stands for none; texts that the settings add are told."""
        found = without_nulls(values, nulls_of(self.settings.nulls, values.name))
        lost = found.null_count() - without_nulls(values, NULLS).null_count()
        if lost > 0:
            self._tell(
                values,
                f"has no value in {lost:,} rows by --null; --null COLUMN=TEXT is of one column alone",
            )
        return found

    def _guess(self, values: pl.Series) -> list[tuple[FeatureKind, pl.Series]]:
        """Features of one column by its values: none, one, or the two of a date."""
        known = values.drop_nulls()
        if not is_printable(element_type(values.dtype)) or not len(known):
            return []
        usual = _KIND_OF_NAME.get(values.name.lower())
        if isinstance(values.dtype, pl.List) or usual == "multi":
            return [("multi", self._lists(values))]
        if usual == "text":
            return [("text", values)] if self.role == "item" else []
        if usual == "category":
            return [("category", values)]
        if values.dtype == pl.Boolean:
            return [("category", values)]
        if (dates := days(values)) is not None:
            self._tell(values, f"is read as dates: {values.name}_days since 1970, and {values.name}_month")
            return _date_features(dates, values.name)
        if values.dtype.is_numeric():
            return self._guess_number(values)
        return self._guess_text(values, known)

    def _guess_number(self, values: pl.Series) -> list[tuple[FeatureKind, pl.Series]]:
        found = as_numbers(values)
        if self._is_other_id(found):
            return []
        if _is_whole(found) and _is_id_name(values.name):
            if values.drop_nulls().n_unique() > max(2.0, _MOST_VALUES * self.count):
                return []
            self._tell(
                values,
                "is called like an id, so it is read as a category; "
                f"--{self.role}-number reads it as a number",
            )
            return [("category", values)]
        return [("number", found)]

    def _is_other_id(self, numbers: pl.Series) -> bool:
        """Whether numbers are whole, and different in nearly every row."""
        return _is_whole(numbers) and numbers.n_unique() > 0.9 * self.count >= 0.9 * _FEWEST_ROWS

    def _guess_text(self, values: pl.Series, known: pl.Series) -> list[tuple[FeatureKind, pl.Series]]:
        texts = values.cast(pl.String)
        if known.cast(pl.String).str.contains(r"^(?:https?://|www\.)").any():
            return []
        found, note = numbers(texts, self.settings.decimal)
        if found.null_count() == texts.null_count():
            self.notes += [note] if note else []
            return self._guess_number(texts if _is_id_name(values.name) and not note else found)
        if truth_values(texts) is not None:
            return [("category", texts)]
        if list_separator(texts) is not None:
            return [("multi", self._lists(texts))]
        if known.n_unique() <= max(2.0, _MOST_VALUES * self.count):
            return [("category", texts)]
        return [("text", texts)] if self.role == "item" and _words(known) >= 2.0 else []

    def _number(self, values: pl.Series) -> pl.Series:
        if values.dtype != pl.String:
            dates = days(values)
            return as_numbers(values) if dates is None else dates.alias(values.name)
        found, note = numbers(values, self.settings.decimal)
        if found.null_count() == values.null_count():
            self.notes += [note] if note else []
            return found
        words, dates = truth_values(values), days(values)
        if words is not None:
            self._tell(values, f"is read as 1 and 0 ({values.drop_nulls()[0]!r} is {words.drop_nulls()[0]})")
            return words.cast(pl.Float64)
        if dates is not None:
            self._tell(values, "is read as dates, in days since 1970")
            return dates.alias(values.name)
        unreadable = values.filter(values.is_not_null() & found.is_null())
        raise ColumnError(
            f"{self.where}: column {values.name!r} holds {unreadable[0]!r}, which is not a number; name the "
            f"column with --{self.role}-category, or the text as one for no value with --null"
        )

    def _lists(self, values: pl.Series) -> pl.Series:
        if values.dtype != pl.String:
            return as_lists(values, "|")
        separator = self.settings.list_separator or list_separator(values) or "|"
        if separator == "json":
            self._tell(values, "is read as JSON lists")
            return as_lists(json_lists(values), "|")
        if not self.settings.list_separator and separator != "|":
            self._tell(
                values, f"is read as lists separated by {separator!r}; --list-separator says otherwise"
            )
        return as_lists(values, separator)

    def _doubt_category(self, values: pl.Series) -> None:
        distinct = values.drop_nulls().n_unique()
        option = f"--{self.role}-multi"
        if values.dtype == pl.String and list_separator(values) is not None:
            self._tell(values, f"looks like lists ({values.drop_nulls()[0]!r}); {option} reads them as such")
        elif distinct > max(_FEWEST_ROWS, _MOST_VALUES * self.count):
            self._tell(
                values,
                f"has {distinct:,} values for {self.count:,} {self.role}s, so most say nothing about others; "
                f"if it is an id, leave it out of {option.replace('multi', 'category')}",
            )

    def _doubt_number(self, numbers: pl.Series, column: pl.Series) -> None:
        if days(column) is not None or not _is_whole(numbers):
            return
        if self._is_other_id(numbers) or _is_id_name(numbers.name):
            self._tell(
                numbers,
                f"looks like an id, whose size says nothing; --{self.role}-category reads it as a category; "
                f"if nearly every {self.role} has another, leave it out",
            )

    def _doubt_text(self, values: pl.Series) -> None:
        known = values.drop_nulls()
        if len(known) >= _FEWEST_ROWS and known.n_unique() > 0.9 * self.count and _words(known) < 1.1:
            self._tell(
                values,
                f"has one word a row ({known[0]!r}), another in nearly each; if it is an id, leave it out of "
                f"--{self.role}-text",
            )

    def _tell(self, values: pl.Series, words: str) -> None:
        self.notes.append(f"{self.where.name}: column {values.name!r} {words}")

    def _options(self) -> str:
        texts = ("text",) if self.role == "item" else ()
        return ", ".join(f"--{self.role}-{kind}" for kind in (*texts, "category", "multi", "number"))


def _is_id_name(name: str) -> bool:
    """Whether a column is called like an id: brand_id, brandId, EAN, zip code."""
    return (
        re.search(r"(?:^|[\W_])(?i:ids?|code|sku|ean|gtin|isbn|asin|upc|zip)$|[a-z](?:Id|ID|Code)$", name)
        is not None
    )


def _is_whole(numbers: pl.Series) -> bool:
    known = numbers.drop_nulls()
    return bool((known == known.floor()).all())


def _words(texts: pl.Series) -> float:
    """The mean number of words, which spaces divide: a code such as AX-17-b is one."""
    words = texts.head(1000).cast(pl.String).str.count_matches(r"\S+").mean()
    return float(words or 0.0)  # type: ignore[arg-type]


def _date_features(dates: pl.Series, name: str) -> list[tuple[FeatureKind, pl.Series]]:
    """The age of an item, up to a constant, and its season."""
    month = pl.select(pl.lit(dates).cast(pl.Int32).cast(pl.Date).dt.month().cast(pl.String)).to_series()
    return [("number", dates.alias(f"{name}_days")), ("category", month.alias(f"{name}_month"))]
