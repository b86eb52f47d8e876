"""The settings of the sources of a log: the form of their files, their columns, their kinds of rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from turret.data.configuration import Place
from turret.data.errors import ConfigurationError, shown

# Texts that exports write for no value. "NA" is none of them: it is a country, and a brand.
NULLS = (
    *("", "NULL", "Null", "null", "None", "none", "NaN", "nan", "-", r"\N"),
    *("<NA>", "#N/A", "N/A", "undefined", "(not set)"),  # pandas, Excel, JavaScript and Google Analytics
)


def nulls_of(nulls: Sequence[str], column: str) -> tuple[str, ...]:
    """Return the texts that stand for no value in `column`, from entries TEXT and COLUMN=TEXT.

    If all entries are for single columns, the usual texts stay for all columns.
    """
    named = [entry.partition("=") for entry in nulls]
    everywhere = tuple(entry for entry, is_named, _ in named if not is_named)
    of_column = (text for name, is_named, text in named if is_named and name == column)
    return ("", *(everywhere or (NULLS if nulls else ())), *of_column)


class Settings(BaseModel, frozen=True, extra="forbid"):
    """Settings that don't change, without unknown names."""


def option(
    text: str, metavar: str | None = None, default: Any = None, names: str = "", **constraints: Any
) -> Any:
    """Return a setting with an option on the command line, named like the setting unless `names` differ."""
    shown: dict[str, Any] = {"metavar": metavar, "names": names}
    return Field(default, description=text, json_schema_extra=shown, **constraints)


def column(text: str, names: str = "") -> Any:
    """Return a setting that names a column."""
    return option(text, "COLUMN", names=names)


def column_list(text: str, metavar: str = "COLUMN", names: str = "") -> Any:
    """Return a setting that names several columns, or has several values of another kind."""
    return option(text, metavar, (), names)


class FileFormat(Settings):
    """The form of a file; `kind` "auto" goes by its name and, for folders and archives, by their content."""

    kind: Literal["auto", "csv", "parquet", "jsonl", "movielens"] = option(
        "auto, csv, parquet, jsonl (JSON in any layout) or movielens.", default="auto", names="format"
    )
    delimiter: str = option("Between CSV fields; detected if not given.", default="")
    encoding: str = option("Of text files that are not UTF-8, such as latin-1.", default="utf-8")
    quote: str = option("The character that encloses CSV fields; empty for none.", default='"', max_length=1)
    has_header: bool = option(
        "CSV without a header: columns are column_1, column_2, ...", default=True, names="no-header"
    )


class FormatSettings(FileFormat):
    """The form of the files, and the meaning of their values.

    The suffix of an items or users file decides before `kind`. `nulls` are the texts that stand for no value,
    of all columns or of one (`COLUMN=TEXT`): an event without a user or an item is a bad row, a feature
    without a value is missing. Without `keep_html`, texts of items are read by `plain_text`
    (data/reading/markup.py).
    """

    list_separator: str = option("Between the values of a list in CSV; | ; or , if not given.", default="")
    decimal: Literal[".", ","] = option("The decimal mark of numbers in CSV: the point, or ','.", default=".")
    nulls: tuple[str, ...] = option(
        "A text that stands for no value, in COLUMN or in all columns; repeatable. Those of all columns "
        r"replace NULL, None, nan, N/A, -, \N and others.",
        "[COLUMN=]TEXT",
        NULLS,
        "null",
    )
    keep_html: bool = option("Leave tags and entities, such as &amp;, in the texts of items.", default=False)


class ColumnSettings(Settings):
    """The column of each role; columns that are not named are looked for under common names.

    `time_unit` "auto" reads each number in the unit in which it lies between 1990 and 2100, or as a date such
    as 20240501, if most values do, else as plain numbers. `time_format` are `strptime` formats for texts in
    none of the common formats.
    """

    user: str | None = column("Of user ids.")
    item: str | None = column("Of item ids.")
    time: str | None = column("Of times, or of any number that sorts events.")
    in_file_order: bool = option("Take the order of the rows instead.", default=False)
    weight: str | None = column("Of weights: how much an event counts in training.")
    quantity: str | None = column("Of quantities: zero and below is a return, and a bad row.")
    kind: str | None = column("Of the events' kinds.", "kind-column")
    label: str | None = column("Of labels: 1 for an event, 0 or -1 for an item not chosen.")
    negatives: str | None = column("Of the items that were not chosen instead: an id or a list.")
    session: str | None = column("Of sessions or orders: baskets, and the users of events without one.")
    answer: str | None = column(
        "Of the ids of answers that events name, for turret history load (answer_id).", "answer-column"
    )
    item_id: str | None = column("Of ids in the items file.")
    user_id: str | None = column("Of ids in the users file.")
    time_unit: Literal["auto", "seconds", "milliseconds", "microseconds", "nanoseconds", "number"] = option(
        "auto, seconds, milliseconds, microseconds, nanoseconds or number.", "UNIT", "auto"
    )
    time_format: Annotated[
        tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)
    ] = column_list("A format of dates, such as %d/%m/%Y %H:%M; repeatable, the first that fits.", "FORMAT")

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.in_file_order and self.time is not None:
            raise ValueError(f"in_file_order contradicts time = {self.time!r}; give one of the two")
        if self.label is not None and self.negatives is not None:
            raise ValueError(
                f"label = {self.label!r} and negatives = {self.negatives!r} both say which items were not "
                "chosen; give one of the two"
            )
        return self


_NO_SHARED = (
    ("in_file_order", "several sources have no common order of rows; name the column of their times"),
    ("label", "labels are of a log of one source; leave them out, or join the files"),
    ("negatives", "lists of negatives are of a log of one source; leave them out, or join the files"),
)


class SourceSettings(Settings):
    """One of several sources of a log: its files, their form and columns, and the kinds of its rows.

    Without a value of their own, the settings of `format` and `columns` are those of all sources. A row has
    the kind in its column, or the one that `kinds` has for the value of this column, or `kind`, as all rows
    have. Quantities are multiplied by `quantity_sign`, -1 where a sale is written as -1; a quantity below
    zero makes a row of the kind `return_kind`, else a return is a bad row. The name is empty for the only
    source of a log.
    """

    name: Annotated[str, Field(pattern=r"^[\w.-]*$")] = ""
    file: Annotated[
        tuple[Place, ...],
        BeforeValidator(lambda value: (value,) if isinstance(value, (str, Path)) else value),
    ] = ()
    format: FormatSettings = FormatSettings()
    columns: ColumnSettings = ColumnSettings()
    kind: str | None = None
    kinds: dict[str, str] = {}
    quantity_sign: Literal[1, -1] = 1
    return_kind: str | None = None

    @property
    def named_kinds(self) -> list[str]:
        """The kinds that these settings name."""
        return [kind for kind in (self.kind, *self.kinds.values(), self.return_kind) if kind is not None]

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        where = f"the source {self.name!r}"
        if self.kind is not None and (self.kinds or self.columns.kind is not None):
            other = "kinds, a table by value," if self.kinds else f"columns.kind = {self.columns.kind!r}"
            raise ValueError(
                f"{where} has kind = {self.kind!r} for all rows, and {other} too; give one of the two"
            )
        if self.columns.quantity is None and (self.return_kind is not None or self.quantity_sign != 1):
            name = "return_kind" if self.return_kind is not None else "quantity_sign"
            raise ValueError(f"{where} has {name} and no quantities; name their column with columns.quantity")
        for name, reason in _NO_SHARED:
            if self.name and getattr(self.columns, name):
                raise ValueError(f"{where} has columns.{name}, but {reason}")
        return self


def files_of_sources(texts: Sequence[object]) -> dict[str, str]:
    """Return the files of texts NAME:FILE by the names of their sources.

    Raises ConfigurationError for a text of another form, and for a name that comes twice.
    """
    files = dict[str, str]()
    for text in texts:
        name, _, file = text.partition(":") if isinstance(text, str) else ("", "", "")
        if not name or not file or file.startswith("//"):
            raise ConfigurationError(
                f"--source {shown(text)} names no source of the file; give NAME:FILE, such as "
                "orders:orders.csv"
            )
        if name in files:
            raise ConfigurationError(named_twice(name))
        files[name] = file
    return files


def refuse_unknown_sources(files: Mapping[str, str], names: Sequence[object]) -> None:
    """Raise ConfigurationError for a file by the name of a source that is none of `names`."""
    entries = ", ".join("one without a name" if name is None else str(name) for name in names)
    if unknown := [name for name in files if name not in names]:
        raise ConfigurationError(
            f"--source {unknown[0]}:{files[unknown[0]]}: no entry of [[sources]] is called {unknown[0]!r}; "
            f"the entries are {entries}"
        )


def named_twice(name: str) -> str:
    """Say that two sources have one name."""
    return (
        f"two sources are called {name!r}; give each a name of its own, and the files of one source as "
        'file = ["FIRST", "SECOND"] or in a folder'
    )


def whole_entries(settings: Mapping[str, Any]) -> Any:
    """Return the entries of `sources` with the files of `source_files`, and the settings of all sources.

    Entries that are no sections are returned as they are, for the sentence of their validation.
    """
    texts, entries = settings.get("source_files") or (), settings.get("sources") or []
    files = files_of_sources(texts if isinstance(texts, (list, tuple)) else [texts])
    if not isinstance(entries, (list, tuple)):
        return entries
    entries = [
        entry.model_dump(exclude_unset=True) if isinstance(entry, BaseModel) else entry for entry in entries
    ]
    if not all(isinstance(entry, dict) for entry in entries):
        return entries
    if entries:
        refuse_unknown_sources(files, [entry.get("name") for entry in entries])
    return [_whole(entry, files, settings) for entry in entries or [{"name": name} for name in files]]


def _whole(entry: Mapping[str, Any], files: Mapping[str, str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry with its file, and with the settings of all sources that it lacks."""
    shared = {key: _over(settings.get(key), entry.get(key)) for key in ("format", "columns")}
    of_entry, columns = entry.get("columns"), shared["columns"]
    has_column = isinstance(of_entry, dict) and "kind" in of_entry
    if entry.get("kind") is not None and not has_column and isinstance(columns, dict):
        shared["columns"] = {key: name for key, name in columns.items() if key != "kind"}
    files_of_entry = [file for name, file in files.items() if name == entry.get("name")]
    return {**entry, **({"file": files_of_entry} if files_of_entry else {}), **shared}


def _over(shared: Any, section: Any) -> Any:
    """Return a section of settings with the values of `section`, where both are sections."""
    shared = shared.model_dump(exclude_unset=True) if isinstance(shared, BaseModel) else shared or {}
    section = {} if section is None else section
    if not isinstance(shared, dict) or not isinstance(section, dict):
        return section
    # One of the two places of a time excludes the other.
    others = {"in_file_order": "time", "time": "in_file_order"}
    return {key: value for key, value in shared.items() if others.get(key) not in section} | section
