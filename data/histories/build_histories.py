"""Histories from the events of a log, with the filters that need the whole log."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

from turret.data.errors import ConfigurationError, EmptyDataError
from turret.data.events.event_arrays import Events
from turret.data.events.events import Log
from turret.data.events.ids import vocabulary
from turret.data.events.read_events import IngestedEvents
from turret.data.histories.filters import distinct_events, k_core
from turret.data.histories.histories import Block, Histories, write_histories
from turret.data.histories.negatives import NegativeFiles
from turret.data.manifest import Removed
from turret.data.reading.schema import Duplicates, FilterSettings
from turret.data.vocabulary import Vocabulary


@dataclass(frozen=True)
class BuiltHistories:
    """Histories and the vocabularies of their rows; every user has an event, every item one or a negative.

    `negatives` counts those in the files of `data.histories.negatives`; None for a log without labels.
    """

    histories: Histories
    users: Vocabulary
    items: Vocabulary
    removed: list[Removed]
    negatives: int | None = None


def build_histories(
    ingested: IngestedEvents,
    log: Log,
    filters: FilterSettings,
    folder: Path,
    work: Path,
    keep_items: bool = False,
) -> BuiltHistories:
    """Sort and filter the events of a log, and write their arrays into `folder`.

    `work` is a folder for temporary files. Users and, unless `keep_items`, items without remaining events are
    dropped, and the others get new rows. Raises EmptyDataError naming the filter that leaves nothing.
    """
    has_positions = log.time.kind == "position"
    if filters.duplicates == "exact" and has_positions:
        raise ConfigurationError(
            'duplicates = "exact" compares times, but the events are in file order; use "first" or "last"'
        )
    if filters.duplicates == "strongest" and not log.has_weights:
        raise ConfigurationError(
            'duplicates = "strongest" compares weights; name their column with --weight, or give '
            "filters.kind_weights"
        )
    count, columns = len(ingested.events), ingested.events.columns
    users, user_rows = vocabulary(ingested.users, log.user_dtype, log.is_text)
    items, item_rows = vocabulary(ingested.items, log.item_dtype, log.is_text)
    blocks = ingested.events.by_user(user_rows, item_rows, work, _deduplicate(filters.duplicates))
    if filters.min_user_events == filters.min_item_events == 1 and not log.has_labels:
        histories = write_histories(blocks, folder, _drop(columns, "users", "parts"), has_positions)
        built = BuiltHistories(histories, users, items, [])
    else:
        histories = write_histories(blocks, work / "all", _drop(columns, "users"), has_positions)
        whole = BuiltHistories(histories, users, items, [])
        built = _filter_core(whole, filters, folder, has_positions, keep_items)
    if filters.duplicates == "keep":
        return built
    # Negatives are rows of `histories` too, which are divided after the filters.
    duplicates = Removed(filter=f"duplicates = {filters.duplicates}", events=count - len(histories))
    return replace(built, removed=[duplicates, *built.removed])


def _drop(columns: dict[str, DTypeLike], *names: str) -> dict[str, DTypeLike]:
    return {name: dtype for name, dtype in columns.items() if name not in names}


def _deduplicate(policy: Duplicates) -> Callable[[Events], Events]:
    if policy == "keep":
        return lambda events: events
    return lambda events: events.take(distinct_events(events, policy))


def _filter_core(
    whole: BuiltHistories, filters: FilterSettings, folder: Path, has_positions: bool, keep_items: bool
) -> BuiltHistories:
    """Write the histories of the users and items that have enough events into `folder`."""
    histories = whole.histories
    core = k_core(histories, len(whole.items), filters.min_user_events, filters.min_item_events)
    name = f"min_user_events = {filters.min_user_events}, min_item_events = {filters.min_item_events}"
    if filters.min_user_events == filters.min_item_events == 1:
        name = "users without an event"  # they have negatives alone
    if not core.users.any():
        raise EmptyDataError(f"the filter {name} leaves none of {len(histories):,} events; loosen it")
    if keep_items:
        core = replace(core, items=np.ones_like(core.items))
    users, items = (np.cumsum(is_kept, dtype=np.int32) - 1 for is_kept in (core.users, core.items))

    def cut(block: Block) -> Events:
        events = replace(block.events, users=block.first + block.events.users)
        return events.take(core.keeps(block)).renumbered(users, items)

    blocks = (events for events in histories.by_block(cut) if len(events))
    columns = _drop(histories.files.columns, "parts", "labels")
    users_kept, items_kept = _select(whole.users, core.users), _select(whole.items, core.items)
    if "labels" not in histories.files.columns:
        filtered = write_histories(blocks, folder, columns, has_positions)
        removed = [Removed(filter=name, events=len(histories) - len(filtered))]
        return BuiltHistories(filtered, users_kept, items_kept, removed)
    with NegativeFiles(folder, "weights" in columns) as files:
        filtered = write_histories(files.without(blocks), folder, columns, has_positions)
    lost = len(histories) - len(filtered) - files.count - files.after - files.equal
    removed = [Removed(filter=name, events=lost)] if lost else []
    return BuiltHistories(
        filtered, users_kept, items_kept, [*removed, *files.removed()], negatives=files.count
    )


def _select(ids: Vocabulary, is_kept: NDArray[np.bool_]) -> Vocabulary:
    return Vocabulary(ids.ids(np.flatnonzero(is_kept)))  # type: ignore[arg-type]
