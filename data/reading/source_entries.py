"""The entries of `[[sources]]` as they are written, with the files of `--source` and the shared settings."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from turret.data.errors import ConfigurationError, shown


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
    if unknown := [name for name in files if name not in names]:
        raise ConfigurationError(
            f"--source {unknown[0]}:{files[unknown[0]]}: no entry of [[sources]] is called {unknown[0]!r}; "
            f"the entries are {', '.join(map(str, names))}"
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
    own, columns = entry.get("columns"), shared["columns"]
    has_column = isinstance(own, dict) and "kind" in own
    if entry.get("kind") is not None and not has_column and isinstance(columns, dict):
        shared["columns"] = {key: name for key, name in columns.items() if key != "kind"}
    files_of_entry = [file for name, file in files.items() if name == entry.get("name")]
    return {**entry, **({"file": files_of_entry} if files_of_entry else {}), **shared}


def _over(shared: Any, own: Any) -> Any:
    """Return a section of settings with the values of `own`, where both are sections."""
    shared = shared.model_dump(exclude_unset=True) if isinstance(shared, BaseModel) else shared or {}
    own = {} if own is None else own
    if not isinstance(shared, dict) or not isinstance(own, dict):
        return own
    # One of the two places of a time excludes the other.
    others = {"in_file_order": "time", "time": "in_file_order"}
    return {key: value for key, value in shared.items() if others.get(key) not in own} | own
