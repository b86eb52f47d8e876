"""The settings of `turret data prepare`, from TOML and from the command line."""

from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    PositiveInt,
    model_validator,
)

from turret.data.configuration import DisplaySettings, Duplicates, Pause, Place
from turret.data.kinds import KindTable, row_codes, target_codes
from turret.data.reading.source_settings import (
    ColumnSettings,
    FileFormat,
    FormatSettings,
    Settings,
    SourceSettings,
    column,
    column_list,
    named_twice,
    option,
    whole_entries,
)

_MOST_KINDS = 127  # codes are int8

Fraction = Annotated[float, Field(gt=0, lt=1)]
# TOML has a type for dates and times, with and without an offset.
EventTime = Annotated[
    str | float | None, BeforeValidator(lambda time: time.isoformat() if isinstance(time, date) else time)
]


class FilterSettings(Settings):
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

    default_kind: str | None = option("The kind of events that have none.", "KIND")
    min_weight: float | None = option("Keep events of at least this weight.")
    duplicates: Duplicates = option(
        "Of a user and an item: keep (the default), exact, first, last or strongest.", default="keep"
    )
    session_gap: Pause | None = option(
        "The pause that ends a session, as 90s, 30m, 12h or 1d: of strangers' --session ids, and of the "
        "events among which --duplicates strongest chooses.",
        "PAUSE",
    )
    max_user_events: PositiveInt | None = option(
        "Leave out users with more events than this, who are no people."
    )
    min_user_events: PositiveInt = option(
        "Keep users with at least this many events, repeatedly (k-core).", default=1
    )
    min_item_events: PositiveInt = option(
        "Keep items with at least this many events, repeatedly (k-core).", default=1
    )


class LastSplit(Settings):
    """Each user's last target is the test and the one before it validation, if the user has three or more."""

    kind: Literal["last"] = "last"


class TimeSplit(Settings):
    """The newest events are the test, those before them validation, cut at the same times for all users.

    The parts are fractions of the events, or begin at two times (a date like 2024-05-01, UTC, or a number as
    in the order column).
    """

    kind: Literal["time"]
    test_fraction: Fraction = option("By time: the newest share of events (.1).", default=0.1)
    validation_fraction: Fraction = option("By time or files: the share for validation (.1).", default=0.1)
    validation_from: EventTime = option(
        "By time: where validation begins, a date (UTC) or a number; with --test-from."
    )
    test_from: EventTime = option("By time: where the test begins; with --validation-from.")

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if (self.validation_from is None) != (self.test_from is None):
            raise ValueError("validation_from and test_from go together; give both, or fractions")
        if self.test_fraction + self.validation_fraction >= 1:
            raise ValueError("test_fraction and validation_fraction have to leave something for training")
        return self


class FilesSplit(Settings):
    """One file per part.

    Without a `validation` file, the newest `validation_fraction` of each user's train events, rounded down,
    is held out for validation (0 for none).
    """

    kind: Literal["files"]
    train: Place = option("By files: the training events.", "FILE", ...)
    validation: Place | None = option("By files: those of validation, if any.", "FILE")
    test: Place = option("By files: the test events.", "FILE", ...)
    validation_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.1


class QuerySplit(Settings):
    """Queries with their items, divided by the text of the query; see `QuerySettings.split`."""

    kind: Literal["queries"] = "queries"


Split = Annotated[LastSplit | TimeSplit | FilesSplit | QuerySplit, Field(discriminator="kind")]


class QuerySettings(Settings):
    """Pairs of a query's text and its item, in place of a log of events.

    The items are in the items file; without this file, they are the distinct texts of the item column. With
    `match` "questions", the items are the training queries, each with the answer of its pair. Without a
    column `split`, a hash of the query's text puts 10 % of the queries into validation and 10 % into the
    test. Texts are read as letter trigrams and as whole words.
    """

    source: Place = option("Pairs of a query and its item, in place of a log.", "FILE", ..., "queries")
    query: str | None = column("Queries: the column of their texts.")
    split: str | None = column("Queries: the column of parts (train, dev, test).", "query-split")
    context: tuple[str, ...] = column_list(
        "Queries: columns of features beside the text, such as a history.", names="query-context"
    )
    match: Literal["answers", "questions"] = option(
        "Match queries with answers (the default), or with stored questions of the same answer.",
        default="answers",
    )


EVERY = "*"


class FeatureColumns(Settings):
    """The columns of the items or users file that towers read: see `data.features.Feature` for the kinds.

    Columns that are neither named nor in `ignore` are features if their values suggest it; `ignore` "*" is
    all columns that are not named.
    """

    text: tuple[str, ...] = column_list("a text, read as letter trigrams.")
    category: tuple[str, ...] = column_list("one of several values.")
    multi: tuple[str, ...] = column_list("a list of values.")
    path: tuple[str, ...] = column_list("a path of levels, as Women > Shoes.")
    number: tuple[str, ...] = column_list("a number.")
    vector: tuple[str, ...] = column_list(
        "a ready vector: a list of numbers, or a file of vectors.", "COLUMN|NAME=FILE.npy"
    )
    other: tuple[str, ...] = column_list("a feature of a kind that a package adds.", "KIND=COLUMN")
    ignore: tuple[str, ...] = column_list("no feature; * for all that are not named.")

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


class PrepareConfig(Settings):
    """All settings of `prepare`.

    `source` is a file of events, a MovieLens folder or zip, or a folder of `events`, `items` and `users`
    files; with `sources`, a log of several, with split.kind = "files", or with `queries` in place of events,
    there is no `source`. `source_files` are files of `sources` by name, and become part of these. Paths are
    relative to the working directory; a URL such as `s3://bucket/events.parquet` is a place in an object
    store. `on_bad` "error" refuses a log that has bad rows, "drop" drops them unless they are more than half,
    and "drop=any" drops them; all count them. `items_format` and `users_format` are for files in another form
    than the events. `kinds` gives the meaning of each kind; without `kinds`, all events are alike, and "auto"
    (`kinds_auto`) is the table that is proposed for a funnel. `fields` are the item columns kept for answers
    (default: all), `answers` is the folder of the answer log, `display` the columns that people
    see. `context` are the columns of events that are known when an answer is asked for: COLUMN, or
    COLUMN=KIND with a kind of features.
    """

    source: Place | None = None
    sources: tuple[SourceSettings, ...] = ()
    source_files: tuple[str, ...] = option(
        "A log of several sources, such as orders:orders.csv: the file of the [[sources]] entry NAME of the "
        "settings, or of a source with the columns of the options; repeatable.",
        "NAME:FILE",
        (),
        "source",
        exclude=True,
    )
    queries: QuerySettings | None = None
    on_bad: Literal["error", "drop", "drop=any"] = option(
        "Rows that can't be events: error (the default), drop (at most half of them), or drop=any.",
        default="error",
    )
    items: Place | None = option("A file with the items' features and fields.", "FILE")
    users: Place | None = option("A file with the users' features.", "FILE")
    answers: Path | None = option(
        "The answer log (TURRET_ANSWER_LOG): events with an answer_id get the place and the propensity with "
        "which that answer showed the item.",
        "DIR",
    )
    sql: str | None = option("Read the events by this query; SOURCE is a database.", "QUERY")
    items_sql: str | None = option(
        "Read the items by this query, from the database of --items, or else of SOURCE.", "QUERY"
    )
    users_sql: str | None = option(
        "Read the users by this query, from the database of --users, or else of SOURCE.", "QUERY"
    )
    since: EventTime = option(
        "The value of :since in queries: a date or time (UTC), or a number as in the column.", "TIME"
    )
    format: FormatSettings = FormatSettings()
    items_format: FileFormat | None = None
    users_format: FileFormat | None = None
    columns: ColumnSettings = ColumnSettings()
    kinds: KindTable = option(
        "What events of a kind are: target (the default: a next item), signal (read in histories), "
        "negative (not chosen) or ignored, as all others are; repeatable. --kinds auto: the table that "
        "is proposed for a funnel.",
        "NAME[=ROLE[:WEIGHT][:consume[=DAYS]]]",
        {},
        "kind kinds",
    )
    kinds_auto: bool = False
    filters: FilterSettings = FilterSettings()
    split: Split = option("last (item of each user out; the default), time, or files.", default=LastSplit())
    item_features: FeatureColumns | None = None
    user_features: FeatureColumns | None = None
    fields: tuple[str, ...] | None = option("Items: kept for answers (all of them).", "COLUMN", names="field")
    display: DisplaySettings = DisplaySettings()
    context: tuple[str, ...] = column_list(
        "Events: known when an answer is asked for, such as device; repeatable.", "COLUMN[=KIND]"
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.context and self.queries is not None:
            raise ValueError(
                f"context = {list(self.context)} is of events, and queries have features of their own; name "
                "the columns with --query-context"
            )
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
