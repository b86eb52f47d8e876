"""The settings of `turret data prepare`, from TOML and from the command line."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    PositiveInt,
    model_validator,
)

from turret.data.configuration import DisplaySettings, Duplicates, Place
from turret.data.kinds import KindTable, row_codes, target_codes
from turret.data.moments import Pause
from turret.data.reading.source_entries import named_twice, whole_entries

# Texts that exports write for no value. "NA" is none of them: it is a country, and a brand.
NULLS = (
    *("", "NULL", "Null", "null", "None", "none", "NaN", "nan", "-", r"\N"),
    *("<NA>", "#N/A", "N/A", "undefined", "(not set)"),  # pandas, Excel, JavaScript and Google Analytics
)

_MOST_KINDS = 127  # codes are int8

Fraction = Annotated[float, Field(gt=0, lt=1)]


def nulls_of(nulls: Sequence[str], column: str) -> tuple[str, ...]:
    """Return the texts that stand for no value in `column`, from entries TEXT and COLUMN=TEXT.

    If all entries are for single columns, the usual texts stay for all columns.
    """
    named = [entry.partition("=") for entry in nulls]
    everywhere = tuple(entry for entry, is_named, _ in named if not is_named)
    of_column = (text for name, is_named, text in named if is_named and name == column)
    return ("", *(everywhere or (NULLS if nulls else ())), *of_column)


# TOML has a type for dates and times, with and without an offset.
EventTime = Annotated[
    str | float | None, BeforeValidator(lambda time: time.isoformat() if isinstance(time, date) else time)
]


class _Settings(BaseModel, frozen=True, extra="forbid"):
    pass


def _option(
    text: str, metavar: str | None = None, default: Any = None, names: str = "", **constraints: Any
) -> Any:
    """Return a setting with an option on the command line, named like the setting unless `names` differ."""
    shown: dict[str, Any] = {"metavar": metavar, "names": names}
    return Field(default, description=text, json_schema_extra=shown, **constraints)


def _column(text: str, names: str = "") -> Any:
    return _option(text, "COLUMN", names=names)


def _columns(text: str, metavar: str = "COLUMN", names: str = "") -> Any:
    return _option(text, metavar, (), names)


class FileFormat(_Settings):
    """The form of a file; `kind` "auto" goes by its name and, for folders and archives, by their content."""

    kind: Literal["auto", "csv", "parquet", "jsonl", "movielens"] = _option(
        "auto, csv, parquet, jsonl (JSON in any layout) or movielens.", default="auto", names="format"
    )
    delimiter: str = _option("Between CSV fields; detected if not given.", default="")
    encoding: str = _option("Of text files that are not UTF-8, such as latin-1.", default="utf-8")
    quote: str = _option("The character that encloses CSV fields; empty for none.", default='"', max_length=1)
    has_header: bool = _option(
        "CSV without a header: columns are column_1, column_2, ...", default=True, names="no-header"
    )


class FormatSettings(FileFormat):
    """The form of the files, and the meaning of their values.

    The suffix of an items or users file decides before `kind`. `nulls` are the texts that stand for no value,
    of all columns or of one (`COLUMN=TEXT`): an event without a user or an item is a bad row, a feature
    without a value is missing. Without `keep_html`, texts of items are read by `plain_text`
    (data/reading/markup.py).
    """

    list_separator: str = _option("Between the values of a list in CSV; | ; or , if not given.", default="")
    decimal: Literal[".", ","] = _option(
        "The decimal mark of numbers in CSV: the point, or ','.", default="."
    )
    nulls: tuple[str, ...] = _option(
        "A text that stands for no value, in COLUMN or in all columns; repeatable. Those of all columns "
        r"replace NULL, None, nan, N/A, -, \N and others.",
        "[COLUMN=]TEXT",
        NULLS,
        "null",
    )
    keep_html: bool = _option("Leave tags and entities, such as &amp;, in the texts of items.", default=False)


class ColumnSettings(_Settings):
    """The column of each role; columns that are not named are looked for under common names.

    `time_unit` "auto" reads each number in the unit in which it lies between 1990 and 2100, or as a date such
    as 20240501, if most values do, else as plain numbers. `time_format` are `strptime` formats for texts in
    none of the common formats.
    """

    user: str | None = _column("Of user ids.")
    item: str | None = _column("Of item ids.")
    time: str | None = _column("Of times, or of any number that sorts events.")
    in_file_order: bool = _option("Take the order of the rows instead.", default=False)
    weight: str | None = _column("Of weights: how much an event counts in training.")
    quantity: str | None = _column("Of quantities: zero and below is a return, and a bad row.")
    kind: str | None = _column("Of the events' kinds.", "kind-column")
    label: str | None = _column("Of labels: 1 for an event, 0 or -1 for an item not chosen.")
    negatives: str | None = _column("Of the items that were not chosen instead: an id or a list.")
    session: str | None = _column("Of sessions or orders: baskets, and the users of events without one.")
    item_id: str | None = _column("Of ids in the items file.")
    user_id: str | None = _column("Of ids in the users file.")
    time_unit: Literal["auto", "seconds", "milliseconds", "microseconds", "nanoseconds", "number"] = _option(
        "auto, seconds, milliseconds, microseconds, nanoseconds or number.", "UNIT", "auto"
    )
    time_format: Annotated[
        tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)
    ] = _columns("A format of dates, such as %d/%m/%Y %H:%M; repeatable, the first that fits.", "FORMAT")

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


class SourceSettings(_Settings):
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


class FilterSettings(_Settings):
    """The events that are kept.

    First, row by row, events stay if the table of kinds does not ignore their kind, then if their weight is
    at least `min_weight`. Rows without a kind are dropped, unless `default_kind` gives them a kind. Then,
    over the whole log, users with more than `max_user_events` are removed, and `duplicates` of a user and an
    item ("first" or "last" by time; "strongest": a target before a signal, then by weight, the newest of
    equal ones; "exact" drops repeats of user, item and time). With `session_gap`, such as "30m", the
    strongest event of each session stays; a session ends where the user has no event for that long. Last,
    users with fewer than `min_user_events` and items with fewer than `min_item_events` are removed until all
    that remain have enough (the k-core).
    """

    default_kind: str | None = _option("The kind of events that have none.", "KIND")
    min_weight: float | None = _option("Keep events of at least this weight.")
    duplicates: Duplicates = _option(
        "Of a user and an item: keep (the default), exact, first, last or strongest.", default="keep"
    )
    session_gap: Pause | None = _option(
        "The pause that ends a session, as 90s, 30m, 12h or 1d: of strangers' --session ids, and of the "
        "events among which --duplicates strongest chooses.",
        "PAUSE",
    )
    max_user_events: PositiveInt | None = _option(
        "Leave out users with more events than this, who are no people."
    )
    min_user_events: PositiveInt = _option(
        "Keep users with at least this many events, repeatedly (k-core).", default=1
    )
    min_item_events: PositiveInt = _option(
        "Keep items with at least this many events, repeatedly (k-core).", default=1
    )


class LastSplit(_Settings):
    """Each user's last target is the test and the one before it validation, if the user has three or more."""

    kind: Literal["last"] = "last"


class TimeSplit(_Settings):
    """The newest events are the test, those before them validation, cut at the same times for all users.

    The parts are fractions of the events, or begin at two times (a date like 2024-05-01, UTC, or a number as
    in the order column).
    """

    kind: Literal["time"]
    test_fraction: Fraction = _option("By time: the newest share of events (.1).", default=0.1)
    validation_fraction: Fraction = _option("By time or files: the share for validation (.1).", default=0.1)
    validation_from: EventTime = _option(
        "By time: where validation begins, a date (UTC) or a number; with --test-from."
    )
    test_from: EventTime = _option("By time: where the test begins; with --validation-from.")

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if (self.validation_from is None) != (self.test_from is None):
            raise ValueError("validation_from and test_from go together; give both, or fractions")
        if self.test_fraction + self.validation_fraction >= 1:
            raise ValueError("test_fraction and validation_fraction have to leave something for training")
        return self


class FilesSplit(_Settings):
    """One file per part.

    Without a `validation` file, the newest `validation_fraction` of each user's train events, rounded down,
    is held out for validation (0 for none).
    """

    kind: Literal["files"]
    train: Place = _option("By files: the training events.", "FILE", ...)
    validation: Place | None = _option("By files: those of validation, if any.", "FILE")
    test: Place = _option("By files: the test events.", "FILE", ...)
    validation_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.1


class QuerySplit(_Settings):
    """Queries with their items, divided by the text of the query; see `QuerySettings.split`."""

    kind: Literal["queries"] = "queries"


Split = Annotated[LastSplit | TimeSplit | FilesSplit | QuerySplit, Field(discriminator="kind")]


class QuerySettings(_Settings):
    """Pairs of a query's text and its item, in place of a log of events.

    The items are in the items file; without this file, they are the distinct texts of the item column. With
    `match` "questions", the items are the training queries, each with the answer of its pair. Without a
    column `split`, a hash of the query's text puts 10 % of the queries into validation and 10 % into the
    test. Texts are read as letter trigrams and as whole words.
    """

    source: Place = _option("Pairs of a query and its item, in place of a log.", "FILE", ..., "queries")
    query: str | None = _column("Queries: the column of their texts.")
    split: str | None = _column("Queries: the column of parts (train, dev, test).", "query-split")
    context: tuple[str, ...] = _columns(
        "Queries: columns of features beside the text, such as a history.", names="query-context"
    )
    match: Literal["answers", "questions"] = _option(
        "Match queries with answers (the default), or with stored questions of the same answer.",
        default="answers",
    )


EVERY = "*"


class FeatureColumns(_Settings):
    """The columns of the items or users file that towers read: see `data.features.Feature` for the kinds.

    Columns that are neither named nor in `ignore` are features if their values suggest it; `ignore` "*" is
    all columns that are not named.
    """

    text: tuple[str, ...] = _columns("a text, read as letter trigrams.")
    category: tuple[str, ...] = _columns("one of several values.")
    multi: tuple[str, ...] = _columns("a list of values.")
    path: tuple[str, ...] = _columns("a path of levels, as Women > Shoes.")
    number: tuple[str, ...] = _columns("a number.")
    vector: tuple[str, ...] = _columns(
        "a ready vector: a list of numbers, or a file of vectors.", "COLUMN|NAME=FILE.npy"
    )
    other: tuple[str, ...] = _columns("a feature of a kind that a package adds.", "KIND=COLUMN")
    ignore: tuple[str, ...] = _columns("no feature; * for all that are not named.")

    @model_validator(mode="after")
    def _names_each_once(self) -> Self:
        from turret.data.features.feature import kind_named  # imports NumPy, which `--help` does without

        for entry in self.other:
            kind, _, name = entry.partition("=")
            if kind_named(kind).name in type(self).model_fields or not name:
                raise ValueError(f"{entry!r} is no KIND=COLUMN with a kind that has no option of its own")
        names = [*(name for _, name in self.by_kind()), *self.vector_files(), *self.ignore]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"column {repeated[0]!r} is named as a feature twice; give it one kind")
        return self

    def over(self, defaults: "FeatureColumns") -> "FeatureColumns":
        """Return these columns, and the columns of `defaults` that these neither name nor ignore."""
        named = {*self.ignore, *self.vector_files(), *(name for _, name in self.by_kind())}
        if EVERY in named:
            return self
        rest = {
            kind: tuple(name for name in names if name.rpartition("=")[2] not in named)
            for kind, names in defaults
        }
        return FeatureColumns(**{kind: names + rest[kind] for kind, names in self})

    def vector_files(self) -> dict[str, Path]:
        """Return the files of vectors by the names of their features."""
        entries = (entry.partition("=") for entry in self.vector)
        return {name: Path(path) for name, is_file, path in entries if is_file}

    def by_kind(self) -> list[tuple[str, str]]:
        """Return (kind, column) for every feature that is a column, in the order of the kinds."""
        from turret.data.features.feature import KINDS

        columns = {**dict(self), "vector": [entry for entry in self.vector if "=" not in entry]}
        named = [(kind, name) for kind in KINDS for name in columns.get(kind, ())]
        others = (entry.partition("=") for entry in self.other)
        return named + [(kind, name) for kind, _, name in others]


class PrepareConfig(_Settings):
    """All settings of `prepare`.

    `source` is a file of events, a MovieLens folder or zip, or a folder of `events`, `items` and `users`
    files; with `sources`, a log of several, with split.kind = "files", or with `queries` in place of events,
    there is no `source`. `source_files` are files of `sources` by name, and become part of these. Paths are
    relative to the working directory; a URL such as `s3://bucket/events.parquet` is a place in an object
    store. `on_bad` "error" refuses a log that has bad rows, "drop" drops them unless they are more than half,
    and "drop=any" drops them; all count them. `items_format` and `users_format` are for files in another form
    than the events. `kinds` gives the meaning of each kind; without `kinds`, all events are alike, and "auto"
    (`kinds_auto`) is the table that is proposed for a funnel. `fields` are the item columns kept for answers
    (default: all), `display` the columns that people see.
    """

    source: Place | None = None
    sources: tuple[SourceSettings, ...] = ()
    source_files: tuple[str, ...] = _option(
        "A log of several sources, such as orders:orders.csv: the file of the [[sources]] entry NAME of the "
        "settings, or of a source with the columns of the options; repeatable.",
        "NAME:FILE",
        (),
        "source",
        exclude=True,
    )
    queries: QuerySettings | None = None
    on_bad: Literal["error", "drop", "drop=any"] = _option(
        "Rows that can't be events: error (the default), drop (at most half of them), or drop=any.",
        default="error",
    )
    items: Place | None = _option("A file with the items' features and fields.", "FILE")
    users: Place | None = _option("A file with the users' features.", "FILE")
    sql: str | None = _option("Read the events by this query; SOURCE is a database.", "QUERY")
    items_sql: str | None = _option(
        "Read the items by this query, from the database of --items, or else of SOURCE.", "QUERY"
    )
    users_sql: str | None = _option(
        "Read the users by this query, from the database of --users, or else of SOURCE.", "QUERY"
    )
    since: EventTime = _option(
        "The value of :since in queries: a date or time (UTC), or a number as in the column.", "TIME"
    )
    format: FormatSettings = FormatSettings()
    items_format: FileFormat | None = None
    users_format: FileFormat | None = None
    columns: ColumnSettings = ColumnSettings()
    kinds: KindTable = _option(
        "What events of a kind are: target (the default: a next item), signal (read in histories), "
        "negative (not chosen) or ignored, as all others are; repeatable. --kinds auto: the table that "
        "is proposed for a funnel.",
        "NAME[=ROLE[:WEIGHT][:consume[=DAYS]]]",
        {},
        "kind kinds",
    )
    kinds_auto: bool = False
    filters: FilterSettings = FilterSettings()
    split: Split = _option("last (item of each user out; the default), time, or files.", default=LastSplit())
    item_features: FeatureColumns | None = None
    user_features: FeatureColumns | None = None
    fields: tuple[str, ...] | None = _option(
        "Items: kept for answers (all of them).", "COLUMN", names="field"
    )
    display: DisplaySettings = DisplaySettings()

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.user_features is not None and self.user_features.text:
            raise ValueError(
                f"user_features.text = {list(self.user_features.text)}: only items have texts; "
                "name the column as a category or a list of values"
            )
        settings = [source.columns for source in self.sources] or [self.columns]
        has_sessions = any(columns.session is not None for columns in settings)
        divides = self.filters.duplicates == "strongest" or has_sessions
        if self.filters.session_gap is not None and not divides:
            raise ValueError(
                'filters.session_gap divides the events among which duplicates = "strongest" chooses, and '
                "strangers' sessions; give --duplicates strongest or --session, or leave it out"
            )
        if self.kinds and not target_codes(self.kinds):
            raise ValueError(
                f"no kind of {', '.join(self.kinds)} is a target, so there is nothing to train; give one the "
                "role target"
            )
        if self.kinds and len(row_codes(self.kinds)) > _MOST_KINDS:
            raise ValueError(
                f"there are more than {_MOST_KINDS} targets, signals and negatives; ignore the rare ones"
            )
        if self.queries is not None and self.split.kind != "queries":
            raise ValueError(
                f'queries are divided by their text, and split.kind = "{self.split.kind}" divides events; '
                "leave it out, and name a column of parts by --query-split"
            )
        if self.queries is not None and (self.columns.time or self.columns.in_file_order):
            raise ValueError("queries have no times; leave out --time and --in-file-order")
        source_count = (self.source is not None) + (self.split.kind == "files") + (self.queries is not None)
        if source_count + bool(self.sources) != 1:
            raise ValueError(
                'give either source, or queries, or the files of split.kind = "files", or sources'
            )
        if self.sources:
            self._check_sources()
        return self

    def _check_sources(self) -> None:
        names = [source.name for source in self.sources]
        for source in self.sources:
            if not source.name:
                raise ValueError('each of [[sources]] has a name; give it, such as name = "orders"')
            if names.count(source.name) > 1:
                raise ValueError(named_twice(source.name))
            if not source.file:
                raise ValueError(
                    f"the source {source.name!r} has no file; give it as file in [[sources]], or with "
                    f"--source {source.name}:FILE"
                )
            unknown = [kind for kind in source.named_kinds if kind not in self.kinds]
            if unknown and self.kinds:
                raise ValueError(
                    f"the source {source.name!r} has rows of the kind {unknown[0]!r}, which the table of "
                    f"kinds lacks; it has {', '.join(self.kinds)}: add the kind there, perhaps as ignored"
                )
            if (unknown or source.columns.kind is not None) and not self.kinds:
                raise ValueError(
                    f"the source {source.name!r} has kinds, and no table says what they are, nor is one "
                    "proposed for several sources; give [kinds], or --kind NAME=ROLE for each"
                )
        if self.kinds_auto:
            raise ValueError(
                "kinds = auto proposes a table for a log of one source; give --kind NAME=ROLE for each kind"
            )

    @model_validator(mode="before")
    @classmethod
    def _completed(cls, settings: Any) -> Any:
        if not isinstance(settings, dict):
            return settings
        if settings.get("kinds") in ("auto", ["auto"], ("auto",)):
            settings = {**settings, "kinds": {}, "kinds_auto": True}
        if settings.get("queries") and not settings.get("split"):
            settings = {**settings, "split": {"kind": "queries"}}
        for name in ("items", "users"):
            if settings.get(f"{name}_sql") is not None and settings.get(name) is None:
                settings = {**settings, name: settings.get("source")}
        if settings.get("source_files") or settings.get("sources"):
            settings = {**settings, "source_files": (), "sources": whole_entries(settings)}
        return settings

    @property
    def urls(self) -> list[str]:
        """The places in object stores that are read."""
        places = [
            self.items,
            self.users,
            self.source,
            *(file for source in self.sources for file in source.file),
        ]
        if self.queries is not None:
            places.append(self.queries.source)
        if isinstance(self.split, FilesSplit):
            places += [self.split.train, self.split.validation, self.split.test]
        return [*dict.fromkeys(place for place in places if isinstance(place, str))]
