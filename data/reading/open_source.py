"""The files of a data set, located by the configuration."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from turret.data.errors import ConfigurationError, SourceError
from turret.data.object_stores.local_copies import LocalCopies
from turret.data.object_stores.place import Place
from turret.data.reading.movielens import WANTED, is_movielens, open_movielens
from turret.data.reading.readers import SUFFIXES, files_of, is_parts, scan
from turret.data.reading.schema import FilesSplit, FormatSettings, PrepareConfig
from turret.data.reading.tables import Source, Table

EVENTS = ("events", "interactions", "ratings", "transactions", "orders", "purchases", "clicks", "views")
ITEMS = ("items", "products", "movies", "articles", "videos")
USERS = ("users", "customers")


def open_source(config: PrepareConfig, work: Path, copies: LocalCopies) -> Source:
    """Open the source of `config`, of URLs their copies; `work` is a folder for temporary files.

    Raises SourceError for paths that do not exist or hold no events, and ConfigurationError for features and
    fields without a file of items or users.
    """
    if isinstance(config.split, FilesSplit):
        source = _parts(config.split, config.format, work, copies)
    else:
        source = _whole(copies.path(config.source or Path()), config.format, work)
    if config.items is not None:
        path = copies.path(config.items)
        source = replace(
            source, items=scan(path, config.format, work), files=(*source.files, *files_of(path))
        )
    if config.users is not None:
        path = copies.path(config.users)
        source = replace(
            source, users=scan(path, config.format, work), files=(*source.files, *files_of(path))
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


def _refuse_without(table: Table | None, remedy: str, settings: dict[str, object]) -> None:
    """Raise ConfigurationError for column settings if there is no table."""
    for setting, value in settings.items():
        if table is None and value:
            raise ConfigurationError(f"{setting} requires {remedy}")


def _parts(split: FilesSplit, settings: FormatSettings, work: Path, copies: LocalCopies) -> Source:
    places = [(0, split.train), (1, split.validation), (2, split.test)]
    existing = [(part, copies.path(place)) for part, place in places if place is not None]
    tables = tuple((part, scan(path, settings, work)) for part, path in existing)
    files = tuple(file for _, path in existing for file in files_of(path))
    return Source(parts=tables, items=None, users=None, files=files)


def _whole(path: Path, settings: FormatSettings, work: Path) -> Source:
    if not path.exists():
        raise SourceError(f"there is no file or folder {path}; check the path")
    if settings.kind == "movielens" or (settings.kind == "auto" and is_movielens(path)):
        return open_movielens(path, work)
    if not path.is_dir() or is_parts(path):
        table = scan(path, settings, work)
        return Source(parts=((None, table),), items=None, users=None, files=files_of(path))
    return _folder(path, settings, work)


def _folder(folder: Path, settings: FormatSettings, work: Path) -> Source:
    """Open a folder of events and, optionally, items and users files with usual names."""
    events = _named(folder, EVENTS)
    items, users = _named(folder, ITEMS), _named(folder, USERS)
    if events is None:
        raise SourceError(
            f"{folder} holds no events: neither {', '.join(EVENTS)} with one of the suffixes "
            f"{', '.join(SUFFIXES)}, nor MovieLens files ({WANTED}); name the file itself, or one file "
            "per part with --train and --test"
        )
    return Source(
        parts=((None, scan(events, settings, work)),),
        items=None if items is None else scan(items, settings, work),
        users=None if users is None else scan(users, settings, work),
        files=tuple(file for path in (events, items, users) if path is not None for file in files_of(path)),
    )


def entity_files(config: PrepareConfig) -> tuple[Place | None, Place | None]:
    """Return the files of items and of users that a configuration reads, None for none.

    Those in a folder of an object store, which is not looked into, are none. Raises SourceError for several
    in one folder.
    """
    folder = config.source
    if not isinstance(folder, Path) or not folder.is_dir() or is_movielens(folder) or is_parts(folder):
        return config.items, config.users
    return config.items or _named(folder, ITEMS), config.users or _named(folder, USERS)


def _named(folder: Path, stems: Sequence[str]) -> Path | None:
    """Return the file, or folder of parts, with one of these names. Raises SourceError for several."""
    names = {stem + ending for stem in stems for ending in SUFFIXES}
    matches = sorted(
        path
        for path in folder.iterdir()
        if (path.is_file() and path.name.lower() in names) or (is_parts(path) and path.stem.lower() in stems)
    )
    if len(matches) > 1:
        several = " and ".join(path.name for path in matches)
        raise SourceError(f"{folder} holds {several}; name the file to read")
    return matches[0] if matches else None
