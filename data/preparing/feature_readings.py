"""The columns of an items or users file as features: as named, or as their values suggest.

A guess is told in a sentence, with the option that says otherwise.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import polars as pl

from turret.data.errors import ColumnError
from turret.data.features import FeatureKind
from turret.data.preparing.encoding import (
    as_lists,
    as_numbers,
    currencies,
    days,
    element_type,
    is_printable,
    json_lists,
    list_separator,
    numbers,
    truth_values,
    truths,
    without_nulls,
)
from turret.data.preparing.vectors import is_vector
from turret.data.progress import counted
from turret.data.reading.columns import Role, require
from turret.data.reading.schema import EVERY, NULLS, FeatureColumns, FormatSettings, nulls_of

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
# More distinct ages are years, not groups.
_AGE_GROUPS = 20
_DISTINCT = "nearly every row has another"


@dataclass
class FeatureReadings:
    """Columns with the types of their features, these by kind, and a sentence on each choice."""

    frame: pl.DataFrame
    chosen: FeatureColumns
    notes: list[str] = field(default_factory=list)


def read_features(
    frame: pl.DataFrame, chosen: FeatureColumns, where: Path, role: Role, settings: FormatSettings
) -> FeatureReadings:
    """Read the chosen columns of `frame`, whose rows are items or users, and guess which others are features.

    Raises ColumnError for a chosen column that does not exist, or whose values are not of its kind.
    """
    return _Reader(where, role, settings, frame.height).read(frame, chosen)


# The features of one column: none for a reason, one, or the two of a date.
Guess = list[tuple[FeatureKind, pl.Series]] | str


@dataclass
class _Reader:
    where: Path
    role: Role
    settings: FormatSettings
    count: int
    notes: list[str] = field(default_factory=list)

    def read(self, frame: pl.DataFrame, chosen: FeatureColumns) -> FeatureReadings:
        for name in (name for name in chosen.ignore if name != EVERY):
            require(name, frame.columns, str(self.where), "ignored feature")
        for kind, name in chosen.by_kind():
            require(name, frame.columns, str(self.where), f"{kind} feature")
            if kind == "vector":
                continue
            values = self._known(frame[name])
            if kind == "number":
                values = self._number(values)
                self._doubt_number(values, frame[name])
            elif kind == "multi":
                values = self._lists(values)
            elif kind == "category":
                values = truths(values)
                self._doubt_category(values)
            else:
                self._doubt_text(values)
            frame = frame.with_columns(values)
        if EVERY not in chosen.ignore:
            named = {name for _, name in chosen.by_kind()} | set(chosen.ignore)
            frame, guessed = self._guess_all(frame, [name for name in frame.columns if name not in named])
            chosen = chosen.over(guessed)
        return FeatureReadings(frame, chosen, self.notes)

    def _guess_all(self, frame: pl.DataFrame, names: list[str]) -> tuple[pl.DataFrame, FeatureColumns]:
        kinds: dict[FeatureKind, list[str]] = {kind: [] for kind in get_args(FeatureKind)}
        left_out = []
        kinds["vector"] = [name for name in names if is_vector(frame[name].dtype)]
        names = [name for name in names if name not in kinds["vector"]]
        values = {name: truths(self._known(frame[name])) for name in names}
        guesses = {name: self._guess(column) for name, column in values.items()}
        texts = [values[name] for name, guess in guesses.items() if guess and guess[0][0] == "category"]
        for name, guess in guesses.items():
            columns = guess if isinstance(guess, str) else [one for one in guess if _varies(*one)]
            if isinstance(columns, str) or not columns:
                left_out.append(f"{name} ({columns or 'one value only'})")
                continue
            for kind, column in columns:
                if kind == "number" and (twin := self._twin(column, texts)):
                    self._tell(column, f"numbers the values of {twin!r}, so it is read as a category")
                    kind, column = "category", values[name]
                kinds[kind].append(column.name)
                frame = frame.with_columns(column)
        told = [f"{name} ({kind})" for kind, names in kinds.items() for name in names]
        if told or left_out:
            rest = f"; left out: {', '.join(left_out)}" if left_out else ""
            self.notes.insert(
                0,
                f"{self.where.name}: read as features are {', '.join(told) or 'no columns'}{rest}; name them "
                f"yourself with {self._options()}",
            )
        return frame, FeatureColumns(**{kind: tuple(names) for kind, names in kinds.items()})

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

    def _twin(self, numbers: pl.Series, categories: list[pl.Series]) -> str | None:
        """The column of texts of which each has one of these whole numbers: they are codes, no quantities."""
        count = numbers.n_unique()
        if not _is_whole(numbers) or not 2 < count <= _MOST_VALUES * self.count:
            return None
        texts = [one for one in categories if one.dtype == pl.String and one.n_unique() == count]
        return next((one.name for one in texts if pl.DataFrame([numbers, one]).n_unique() == count), None)

    def _guess(self, values: pl.Series) -> Guess:
        known = values.drop_nulls()
        if isinstance(values.dtype, pl.List):
            known = known.filter(known.list.len() > 0)
        if not is_printable(element_type(values.dtype)):
            return "nested records" if values.dtype.is_nested() else f"values of the type {values.dtype}"
        if not len(known):
            return "no value"
        usual = _KIND_OF_NAME.get(values.name.lower())
        if usual == "category" and values.dtype == pl.String:
            usual = "multi" if _separator(values) else usual
        if isinstance(values.dtype, pl.List) or usual == "multi":
            return [("multi", self._lists(values))]
        if usual == "text":
            return [("text", values)] if self.role == "item" else "texts of users"
        if usual == "category" and (values.name.lower() != "age" or known.n_unique() <= _AGE_GROUPS):
            return [("category", values)]
        if values.dtype == pl.Boolean:
            return [("category", values)]
        if (dates := days(values)) is not None:
            self._tell(values, f"is read as dates: {values.name}_days since 1970, and {values.name}_month")
            return _date_features(dates, values.name)
        if values.dtype.is_numeric():
            return self._guess_number(values)
        return self._guess_text(values, known)

    def _guess_number(self, values: pl.Series) -> Guess:
        found = as_numbers(values)
        if self._is_other_id(found):
            return f"whole numbers, {_DISTINCT}"
        if _is_whole(found) and _is_id_name(values.name):
            return self._guess_code(values, "is called like an id")
        return [("number", found)]

    def _guess_code(self, values: pl.Series, reason: str) -> Guess:
        if values.drop_nulls().n_unique() > max(2.0, _MOST_VALUES * self.count):
            return f"codes, {_DISTINCT}"
        self._tell(
            values, f"{reason}, so it is read as a category; --{self.role}-number reads it as a number"
        )
        return [("category", values)]

    def _is_other_id(self, numbers: pl.Series) -> bool:
        """Whether numbers are whole, and different in nearly every row."""
        return _is_whole(numbers) and numbers.n_unique() > 0.9 * self.count >= 0.9 * _FEWEST_ROWS

    def _guess_text(self, values: pl.Series, known: pl.Series) -> Guess:
        texts = values.cast(pl.String)
        known = known.cast(pl.String)
        if known.str.contains(r"^(?:https?://|www\.)").any():
            return "links"
        found, note = numbers(texts, self.settings.decimal)
        others = texts.filter(texts.is_not_null() & found.is_null())
        if len(signs := currencies(texts.filter(found.is_not_null()))) > 1:
            return f"prices in several currencies, {' and '.join(signs)}"
        if not len(others):
            if known.str.contains(r"^0\d+$").any():
                return self._guess_code(texts, "has zeros in front")
            self.notes += [note] if note else []
            return self._guess_number(texts if _is_id_name(values.name) and not note else found)
        if truth_values(texts) is not None:
            return [("category", texts)]
        if list_separator(texts) is not None:
            return [("multi", self._lists(texts))]
        is_mostly_numbers = len(others) < len(known) / 2
        if known.n_unique() <= max(2.0, _MOST_VALUES * self.count):
            if is_mostly_numbers:
                self._tell(
                    values,
                    f"holds numbers and {others[0]!r}, so it is read as a category; to read it as a number, "
                    f"give --{self.role}-number, and --null for each such text",
                )
            return [("category", texts)]
        if is_mostly_numbers:
            missing = f"{len(others):,} of {counted(len(known), 'value')}"
            self._tell(values, f"is read as a number; {missing} are none, such as {others[0]!r}, and missing")
            return [("number", found)]
        if self.role == "item" and _words(known) >= 2.0:
            return [("text", texts)]
        return f"texts, {_DISTINCT}"

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
        separator = self.settings.list_separator or _separator(values) or "|"
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
        return ", ".join(
            f"--{self.role}-{kind}" for kind in (*texts, "category", "multi", "number", "vector", "ignore")
        )


def _separator(values: pl.Series) -> str | None:
    return list_separator(values, usual=values.name.lower() in ("genre", *_USUAL["multi"]))


def _is_id_name(name: str) -> bool:
    """Whether a column is called like an id: brand_id, brandId, EAN, zip code, type_no."""
    words = r"ids?|codes?|key|no|nr|sku|ean|gtin|isbn|asin|upc|zip"
    return re.search(rf"(?:^|[\W_])(?i:{words})$|[a-z](?:Id|ID|Code|Key|No|Nr)$", name) is not None


def _varies(kind: FeatureKind, column: pl.Series) -> bool:
    """Whether a feature differs between rows; no value is a value of each kind but numbers."""
    if isinstance(column.dtype, pl.List):
        column = column.list.join("\0")
    return (column.drop_nulls() if kind == "number" else column).n_unique() > 1


def _is_whole(numbers: pl.Series) -> bool:
    known = numbers.drop_nulls()
    return bool((known == known.floor()).all())


def _words(texts: pl.Series) -> float:
    """The mean number of words, which spaces divide: a code such as AX-17-b is one."""
    words = texts.head(1000).cast(pl.String).str.count_matches(r"\S+").mean()
    return float(words or 0.0)  # type: ignore[arg-type]


def _date_features(dates: pl.Series, name: str) -> Guess:
    """The age of an item, up to a constant, and its season."""
    month = pl.select(pl.lit(dates).cast(pl.Int32).cast(pl.Date).dt.month().cast(pl.String)).to_series()
    return [("number", dates.alias(f"{name}_days")), ("category", month.alias(f"{name}_month"))]
