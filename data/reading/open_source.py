"""The files of a data set, located by the configuration."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from turret.data.configuration import Place
from turret.data.errors import ConfigurationError, SourceError
from turret.data.reading.movielens import WANTED, is_movielens, open_movielens
from turret.data.reading.queries import open_queries
from turret.data.reading.readers import (
    FORMATS,
    absent,
    join_parts,
    parts_of,
    scan,
    states_format,
    stem_and_format,
    visible_files,
)
from turret.data.reading.schema import FilesSplit, PrepareConfig
from turret.data.reading.source_settings import FileFormat
from turret.data.reading.tables import Source, Table
from turret.data.rows import LOCAL, Engine

EVENTS = ("events", "interactions", "ratings", "transactions", "orders", "purchases", "clicks", "views")
ITEMS = ("items", "products", "movies", "articles", "videos")
USERS = ("users", "customers")


def open_source(
    config: PrepareConfig, work: Path, copies: Mapping[Place, Path], engine: Engine = LOCAL
) -> Source:
    """Open the source of `config`, with the `copies` of URLs; `work` is a folder for temporary files.

    `engine` reads the files of events, and this process those of items and users, and of queries.

    Raises SourceError for paths that do not exist or hold no events, and ConfigurationError for features and
    fields without a file of items or users.
    """
    tables = {
        name: _scan_entities(copies.get(place, Path(place)), config, name, work)
        for name, place in (("items", config.items), ("users", config.users))
        if place is not None
    }
    if config.queries is not None:
        place = config.queries.source
        table = scan(copies.get(place, Path(place)), config.format, work)
        source = open_queries(config.queries, config, table, tables.get("items"))
    elif config.sources:
        logs = [
            (settings, scan(copies.get(file, Path(file)), settings.format, work, engine))
            for settings in config.sources
            for file in settings.file
        ]
        source = Source(tuple((None, table) for _, table in logs), sources=tuple(logs))
    elif isinstance(config.split, FilesSplit):
        files = (config.split.train, config.split.validation, config.split.test)
        parts = (
            (part, scan(copies.get(file, Path(file)), config.format, work, engine))
            for part, file in enumerate(files)
            if file
        )
        source = Source(tuple(parts))
    else:
        assert config.source is not None
        path = copies.get(config.source, Path(config.source))
        if config.format.kind == "movielens" or path.is_dir() or path.suffix.lower() == ".zip":
            source = _open_folder(path, config, work, [*tables.values()], engine)
        else:
            source = Source(((None, scan(path, config.format, work, engine)),))
    source = replace(source, items=tables.get("items", source.items), users=tables.get("users", source.users))
    if source.items is None and ((config.item_features and config.item_features.by_kind()) or config.fields):
        raise ConfigurationError("item_features and fields require an items file; name it with --items")
    if source.users is None and config.user_features and config.user_features.by_kind():
        raise ConfigurationError("user_features requires a users file; name it with --users")
    return source


def _scan_entities(path: Path, config: PrepareConfig, name: str, work: Path) -> Table:
    """Scan the items or users (`name`); the suffix of their file wins over the events' `--format`."""
    settings: FileFormat | None = getattr(config, f"{name}_format")
    if settings is None:
        update = {"kind": "auto"} if path.exists() and states_format(path) else {}
        settings = config.format.model_copy(update=update)
    return scan(path, settings, work)


def _open_folder(
    path: Path, config: PrepareConfig, work: Path, others: Sequence[Table], engine: Engine
) -> Source:
    """Open a folder or an archive of events; the files of the tables `others` hold no events.

    A folder has events and, optionally, items and users under usual names. Without a usual name for events,
    all other files are parts of the events.
    """
    if not path.exists():
        raise SourceError(absent(path))
    if config.format.kind == "movielens" or (config.format.kind == "auto" and is_movielens(path)):
        return open_movielens(path, work)
    if not path.is_dir():
        return Source(((None, scan(path, config.format, work, engine)),))
    events = _named(path, EVENTS)
    entities = {
        name: _scan_entities(place, config, name, work)
        for name, stems in (("items", ITEMS), ("users", USERS))
        if (place := _named(path, stems)) is not None
    }
    files = {file for table in (*entities.values(), *others) for file in table.files}
    if events is not None:
        table = scan(events, config.format, work, engine)
    else:
        parts = [part for part in parts_of(path, config.format) if part not in files]
        if not parts:
            raise SourceError(
                f"{path} holds no events: neither {', '.join(EVENTS)} with one of the suffixes "
                f"{', '.join(FORMATS)}, nor parts with one, nor MovieLens files ({WANTED}); name the file "
                "itself, the format with --format, or one file per part with --train and --test"
            )
        table = join_parts(path, parts, config.format, work, engine)
    read = {*table.files, *files}
    unread = tuple(file for file in visible_files(path) if file not in read)
    return Source(((None, table),), entities.get("items"), entities.get("users"), unread=unread)


def entity_files(config: PrepareConfig) -> tuple[Place | None, Place | None]:
    """Return the files of items and of users that a configuration reads, None for none.

    Files in a folder of an object store, which is not looked into, are None. Raises SourceError for several
    such files in one folder.
    """
    folder = config.source
    if not isinstance(folder, Path) or not folder.is_dir() or is_movielens(folder):
        return config.items, config.users
    return config.items or _named(folder, ITEMS), config.users or _named(folder, USERS)


def _named(folder: Path, stems: Sequence[str]) -> Path | None:
    """Return the file, or folder of parts, with one of these names. Raises SourceError for two matches."""
    matches = [
        path for path in sorted(folder.iterdir()) if stem_and_format(path)[0] in stems and states_format(path)
    ]
    if len(matches) > 1:
        names = " and ".join(path.name for path in matches)
        raise SourceError(f"{folder} holds {names}; name the file to read")
    return matches[0] if matches else None
