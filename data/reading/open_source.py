"""The files of a data set, located by the configuration."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from turret.data.errors import ConfigurationError, SourceError
from turret.data.reading.movielens import WANTED, is_movielens, open_movielens
from turret.data.reading.queries import open_queries
from turret.data.reading.readers import (
    FORMATS,
    join_parts,
    parts_of,
    scan,
    states_format,
    stem_and_format,
    visible_files,
)
from turret.data.reading.schema import FileFormat, FilesSplit, FormatSettings, PrepareConfig
from turret.data.reading.tables import Source, Table
from turret.data.stores import LocalCopies, Place

EVENTS = ("events", "interactions", "ratings", "transactions", "orders", "purchases", "clicks", "views")
ITEMS = ("items", "products", "movies", "articles", "videos")
USERS = ("users", "customers")


def open_source(config: PrepareConfig, work: Path, copies: LocalCopies) -> Source:
    """Open the source of `config`, of URLs their copies; `work` is a folder for temporary files.

    Raises SourceError for paths that do not exist or hold no events, and ConfigurationError for features and
    fields without a file of items or users.
    """
    entities = {
        name: _scan_entities(copies.path(place), config, name, work)
        for name, place in (("items", config.items), ("users", config.users))
        if place is not None
    }
    if config.queries is not None:
        table = scan(copies.path(config.queries.source), config.format, work)
        source = open_queries(config.queries, config, table, entities.get("items"))
    elif isinstance(config.split, FilesSplit):
        source = _parts(config.split, config.format, work, copies)
    else:
        source = _whole(copies.path(config.source or Path()), config, work, [*entities.values()])
    files = tuple(file for table in entities.values() for file in table.files)
    source = replace(
        source,
        items=entities.get("items", source.items),
        users=entities.get("users", source.users),
        files=(*source.files, *files),
    )
    of_items = config.item_features and config.item_features.by_kind()
    of_users = config.user_features and config.user_features.by_kind()
    _refuse_without(
        source.items,
        "an items file; name it with --items",
        {"item_features": of_items, "fields": config.fields},
    )
    _refuse_without(source.users, "a users file; name it with --users", {"user_features": of_users})
    return source


def _scan_entities(path: Path, config: PrepareConfig, name: str, work: Path) -> Table:
    """Scan the items or users (`name`); the suffix of their file wins over `--format`, of the events."""
    settings: FileFormat | None = getattr(config, f"{name}_format")
    if settings is None:
        update = {"kind": "auto"} if path.exists() and states_format(path) else {}
        settings = config.format.model_copy(update=update)
    return scan(path, settings, work)


def _refuse_without(table: Table | None, remedy: str, settings: dict[str, object]) -> None:
    """Raise ConfigurationError for column settings if there is no table."""
    for setting, value in settings.items():
        if table is None and value:
            raise ConfigurationError(f"{setting} requires {remedy}")


def _parts(split: FilesSplit, settings: FormatSettings, work: Path, copies: LocalCopies) -> Source:
    places = [(0, split.train), (1, split.validation), (2, split.test)]
    existing = [(part, copies.path(place)) for part, place in places if place is not None]
    tables = tuple((part, scan(path, settings, work)) for part, path in existing)
    files = tuple(file for _, table in tables for file in table.files)
    return Source(parts=tables, items=None, users=None, files=files)


def _whole(path: Path, config: PrepareConfig, work: Path, others: Sequence[Table]) -> Source:
    """Open one place of events; the files of the tables `others` are none."""
    if not path.exists():
        raise SourceError(f"there is no file or folder {path}; check the path")
    if config.format.kind == "movielens" or (config.format.kind == "auto" and is_movielens(path)):
        return open_movielens(path, work)
    if path.is_dir():
        return _folder(path, config, work, {file for table in others for file in table.files})
    table = scan(path, config.format, work)
    return Source(parts=((None, table),), items=None, users=None, files=table.files)


def _folder(folder: Path, config: PrepareConfig, work: Path, others: Collection[Path]) -> Source:
    """Open a folder of events and, optionally, items and users files with usual names.

    Without a usual name for the events, they are in all other files, its parts.
    """
    events = _named(folder, EVENTS)
    entities = {
        name: _scan_entities(path, config, name, work)
        for name, stems in (("items", ITEMS), ("users", USERS))
        if (path := _named(folder, stems)) is not None
    }
    files = tuple(file for table in entities.values() for file in table.files)
    if events is not None:
        table = scan(events, config.format, work)
    else:
        parts = [path for path in parts_of(folder, config.format) if path not in {*files, *others}]
        if not parts:
            raise SourceError(
                f"{folder} holds no events: neither {', '.join(EVENTS)} with one of the suffixes "
                f"{', '.join(FORMATS)}, nor parts with one, nor MovieLens files ({WANTED}); name the file "
                "itself, the format with --format, or one file per part with --train and --test"
            )
        table = join_parts(folder, parts, config.format, work)
    files = (*table.files, *files)
    unread = tuple(path for path in visible_files(folder) if path not in {*files, *others})
    return Source(
        parts=((None, table),),
        items=entities.get("items"),
        users=entities.get("users"),
        files=files,
        unread=unread,
    )


def entity_files(config: PrepareConfig) -> tuple[Place | None, Place | None]:
    """Return the files of items and of users that a configuration reads, None for none.

    Those in a folder of an object store, which is not looked into, are none. Raises SourceError for several
    in one folder.
    """
    folder = config.source
    if not isinstance(folder, Path) or not folder.is_dir() or is_movielens(folder):
        return config.items, config.users
    return config.items or _named(folder, ITEMS), config.users or _named(folder, USERS)


def _named(folder: Path, stems: Sequence[str]) -> Path | None:
    """Return the file, or folder of parts, with one of these names. Raises SourceError for several."""
    matches = [
        path for path in sorted(folder.iterdir()) if stem_and_format(path)[0] in stems and states_format(path)
    ]
    if len(matches) > 1:
        several = " and ".join(path.name for path in matches)
        raise SourceError(f"{folder} holds {several}; name the file to read")
    return matches[0] if matches else None
