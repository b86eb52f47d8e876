"""Faults of reading, preparing and fetching events."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from tests.planted.fault import Function, planted, seeing


@planted("turret.data.events.ids:as_keys", "data/test_events.py")
def a_text_like_007_becomes_the_integer_7(original: Function) -> Function:
    def as_keys(texts: pl.Series, dtype: pl.DataType) -> pl.Series:
        return texts if dtype == pl.String else texts.cast(pl.Int64, strict=False).drop_nulls()

    return as_keys


@planted("turret.data.events.ids:IdInterner._collision", "data/test_events.py")
def texts_that_share_a_hash_share_a_number(original: Function) -> Function:
    def collision(self: Any, text: str) -> int:
        keys = original.__globals__["_keys"](pl.Series([text]))
        return int(self._numbers[np.searchsorted(self._keys, keys[0])])

    return collision


@planted("turret.data.events.event_arrays:stable_order", "data/test_events.py")
def events_of_one_time_lose_the_order_of_the_log(original: Function) -> Function:
    def stable_order(keys: Any) -> Any:
        return np.lexsort((-np.arange(len(keys[0])), *keys[::-1]))

    return stable_order


@planted("turret.data.histories.histories:distinct_events", "data/test_histories.py")
def exact_duplicates_are_found_without_their_times(original: Function) -> Function:
    return lambda events, policy, *kinds: original(events, "first" if policy == "exact" else policy, *kinds)


@planted("turret.data.histories.histories:k_core", "data/test_histories.py")
def the_k_core_is_filtered_once(original: Function) -> Function:
    def k_core(histories: Any, min_user_events: int, min_item_events: int) -> Any:
        everything = (
            np.ones(len(histories.offsets) - 1, dtype=bool),
            np.ones(len(histories.items), dtype=bool),
        )
        users, items = original.__globals__["_count"](histories, everything, min_item_events > 1)
        return users >= min_user_events, items >= min_item_events

    return k_core


@planted("turret.data.histories.partition:by_time", "data/test_histories.py")
def an_event_at_the_cut_belongs_to_the_part_before_it(original: Function) -> Function:
    def by_time(times: Any, offsets: Any, *cuts: float) -> Any:
        return original(times, offsets, *(np.nextafter(cut, np.inf) for cut in cuts))

    return by_time


@planted("turret.data.prepared:PreparedData.history", "data/test_prepared.py")
def the_history_before_validation_holds_validation(original: Function) -> Function:
    return lambda self, user, until: original(self, user, "test" if until == "validation" else until)


@planted("turret.data.prepared:PreparedData.verify", "data/test_prepared.py")
def verification_compares_sizes_alone(original: Function) -> Function:
    def verify(self: Any) -> None:
        sizes = {name: (self.folder / name).stat().st_size for name in self.manifest.files}
        if sizes != {name: file.bytes for name, file in self.manifest.files.items()}:
            original(self)

    return verify


@planted("turret.data.files:new_file", "data/test_files.py")
def a_new_file_is_not_synced(original: Any) -> Function:
    return contextmanager(seeing(original.__wrapped__, sync=lambda path: None))


@planted("turret.data.files:locked", "data/test_files.py")
def several_threads_hold_the_lock_of_a_folder(original: Function) -> Function:
    @contextmanager
    def locked(folder: Any) -> Iterator[None]:
        folder.stat()
        yield

    return locked


@planted("turret.data.preparing.prepare:new_prepared_folder", "data/test_preparing.py")
def overwrite_deletes_a_folder_that_is_no_prepared_data(original: Function) -> Function:
    def new_prepared_folder(target: Any, overwrite: bool) -> AbstractContextManager[Any]:
        folder: AbstractContextManager[Any] = original.__globals__["new_folder"](target, overwrite)
        return folder if overwrite else original(target, overwrite)

    return new_prepared_folder


@planted("turret.data.reading.datasets:_verify", "data/test_datasets.py")
def a_data_set_is_unpacked_whatever_its_checksum(original: Function) -> Function:
    return lambda archive, dataset: None


@planted("turret.data.histories.partition:last_out", "data/test_kinds.py")
def the_last_events_are_held_out_though_they_are_no_targets(original: Function) -> Function:
    return lambda offsets, targets=None: original(offsets)


@planted("turret.data.events.events:with_strangers", "data/test_sessions.py")
def a_login_reaches_across_the_pause_that_ends_a_session(original: Function) -> Function:
    return lambda *others: original(*others[:5], None, others[6])


@planted("turret.data.preparing.append:_known", "data/test_append.py")
def an_appended_event_that_the_data_has_already_is_added_again(original: Function) -> Function:
    return lambda events: np.zeros_like(original(events))


@planted("turret.data.preparing.append:_refuse", "data/test_append.py")
def negatives_are_appended_as_events(original: Function) -> Function:
    def refuse(old: Any, before: Any, given: Any) -> None:
        columns = old.manifest.columns.model_copy(update={"label": None})
        original(replace(old, manifest=old.manifest.model_copy(update={"columns": columns})), before, {})

    return refuse


@planted("turret.data.histories.negatives:_same_group", "data/test_histories.py", "data/test_labels.py")
def a_negative_belongs_to_an_event_of_another_user(original: Function) -> Function:
    def same_group(events: Any, positions: Any, negatives: Any) -> Any:
        at = positions.clip(0, len(events) - 1)
        return original(events, positions, replace(negatives, users=events.users[at]))

    return same_group


@planted("turret.data.events.labels:label_value", "data/test_labels.py")
def a_label_that_is_neither_0_nor_1_is_negative(original: Function) -> Function:
    def label_value(columns: Any, schema: pl.Schema) -> pl.Expr | None:
        value = original(columns, schema)
        return None if value is None else value.fill_null(-1)

    return label_value
