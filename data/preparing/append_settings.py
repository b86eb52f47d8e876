"""The settings and the columns of a log that is appended: those of the first preparation where they fit."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from turret.data.configuration import Place, override
from turret.data.databases.addresses import is_database
from turret.data.databases.results import takes_since
from turret.data.errors import ConfigurationError
from turret.data.manifest import DataManifest
from turret.data.prepared import PreparedData
from turret.data.preparing.log_sources import shared_columns
from turret.data.reading.open_source import entity_files
from turret.data.reading.schema import PrepareConfig
from turret.data.reading.source_settings import (
    ColumnSettings,
    SourceSettings,
    files_of_sources,
    refuse_unknown_sources,
)
from turret.data.reading.tables import Source, Table

_NEW_SOURCE = "new"
"""The name of the new log beside files of sources."""


def appended_settings(
    old: PreparedData, source: Place | None, overrides: Mapping[str, object]
) -> PrepareConfig:
    """Return the settings of the first preparation for the new source, without names of columns.

    New files of the sources of the first preparation are read as its files of these sources were.

    Raises ConfigurationError where features need a file of items or users that is not there, and for data to
    which no events can be appended without reading its log.
    """
    settings = old.manifest.settings
    before = PrepareConfig.model_validate(settings)
    _refuse(old, before, overrides)
    files = files_of_sources(overrides.get("source_files") or ())  # type: ignore[arg-type]
    entries = {settings.name: settings.model_dump(mode="json") for settings in before.sources}
    if entries:
        refuse_unknown_sources(files, [*entries])
    entries = {name: entries.get(name, {"name": name}) for name in files}
    if files and source is not None:
        if is_database(source):
            raise ConfigurationError(
                "a database and files of sources are two logs; append one, and then the other"
            )
        name = _NEW_SOURCE + "_" * len(entries) * (_NEW_SOURCE in entries)
        entries[name] = {"name": name, "file": [source]}
    moved = {
        **settings,
        "source": None if entries else source,
        "sources": [*entries.values()],
        "columns": before.columns.model_dump(),
    }
    # The query of the first log reads a database again, from the newest event on.
    moved["sql"] = before.sql if is_database(source) else None
    queries = [overrides.get(name, moved.get(name)) for name in ("sql", "items_sql", "users_sql")]
    moved["since"] = old.manifest.time.until if takes_since(queries) else None
    items = ("items", bool(old.fields or old.manifest.item_features))
    for (name, are_read), first in zip(
        (items, ("users", bool(old.manifest.user_features))), entity_files(before), strict=True
    ):
        if name not in overrides and isinstance(first, Path) and not first.exists():
            raise ConfigurationError(
                f"the {name} of {old.folder} were read from {first}, which is gone; "
                f"name their file with --{name}"
            )
        moved[name] = overrides.get(name, first)
        if name in overrides:
            moved[f"{name}_sql"] = None
        if are_read and moved[name] is None:
            raise ConfigurationError(
                f"the {name} of {old.folder} have features or fields; name their file with --{name}"
            )
    # `_columns` finds all by name.
    for role in ("user", "item", "time", "weight", "quantity", "kind", "answer"):
        moved["columns"][role] = None
    return override(
        PrepareConfig, moved, {name: overrides[name] for name in overrides if name not in ("items", "users")}
    )


def _refuse(old: PreparedData, before: PrepareConfig, overrides: Mapping[str, object]) -> None:
    has_negatives = any(
        getattr(old.manifest.columns, name) or f"columns.{name}" in overrides
        for name in ("label", "negatives")
    )
    for holds, reason in (
        (
            old.has_queries,
            "holds queries, and `turret data append` merges events alone; prepare all pairs again",
        ),
        (
            old.negatives is not None and old.manifest.time.kind == "position",
            "has negatives and no times, so new events have no place among them; prepare the whole log again",
        ),
        (
            max(before.filters.min_user_events, before.filters.min_item_events) > 1,
            "lacks the events of users or items with too few of them (min_user_events, min_item_events), "
            "which new events could bring back; prepare the whole log again",
        ),
        (
            before.split.kind == "files",
            "is split by files, and new events belong to none of them; prepare it again with another "
            "--split, or with all files",
        ),
        (
            before.answers is None and "answers" in overrides,
            "was prepared without an answer log, so its events have no places; prepare the whole log again "
            "with --answers",
        ),
        (
            has_negatives,
            "or the new log has labels or negatives (--label, --negatives), and `turret data append` merges "
            "events alone; prepare the whole log again",
        ),
    ):
        if holds:
            raise ConfigurationError(f"{old.folder} {reason}")


def appended_columns(
    source: Source, manifest: DataManifest, overrides: Mapping[str, object], config: PrepareConfig
) -> Source:
    """Return the new log with its columns; a source that the first preparation had keeps its own."""

    def columns(parts: Sequence[tuple[int | None, Table]]) -> ColumnSettings:
        return _columns(manifest, overrides, config, source, parts)

    if not source.sources:
        return replace(source, columns=columns(source.parts))
    known = {entry["name"] for entry in manifest.settings.get("sources", ())}

    def named(settings: SourceSettings, table: Table) -> SourceSettings:
        if settings.name in known:
            return settings
        return settings.model_copy(update={"columns": columns([(None, table)])})

    return replace(
        source, sources=tuple((named(settings, table), table) for settings, table in source.sources)
    )


def _columns(
    manifest: DataManifest,
    overrides: Mapping[str, object],
    config: PrepareConfig,
    source: Source,
    parts: Sequence[tuple[int | None, Table]],
) -> ColumnSettings:
    """Return column settings of `parts`: the given names, else the names of the first log that these have.

    A file that `turret history dump` wrote has the usual names, "kind" for kinds and "session_id".
    """
    existing, schema = shared_columns(parts), parts[0][1].frame.collect_schema()
    names = manifest.columns.model_dump()
    for role, dumped in (("kind", "kind"), ("session", "session_id")):
        if names[role] is not None and names[role] not in existing and dumped in existing:
            names[role] = dumped
    if names["user"] == names["session"]:  # the first log has no users; the new log may have some
        names["user"] = None
    needed = {"weight"} | ({"kind"} if config.kinds else set())
    changed: dict[str, Any] = {
        role: name
        for role, name in names.items()
        if f"columns.{role}" not in overrides and name is not None and (name in existing or role in needed)
    }
    if "columns.session" not in overrides:
        changed.setdefault("session", None)
    for role, table in (("item", source.items), ("user", source.users)):
        # The id in the items file is called as in the first log.
        if table and getattr(config.columns, f"{role}_id") is None and names[role] in table.columns:
            changed[f"{role}_id"] = names[role]
    # The unit and the format of the first log do not apply to a column of dates, or to another column.
    if "time" not in changed or schema[changed["time"]].is_temporal():
        defaults = {"time_unit": "auto", "time_format": None}
        changed |= {name: value for name, value in defaults.items() if f"columns.{name}" not in overrides}
    return config.columns.model_copy(update=changed)
