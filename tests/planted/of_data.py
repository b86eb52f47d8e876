"""Faults of reading, preparing and fetching events."""

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import ANY

import numpy as np
import polars as pl

from tests.planted.fault import Function, planted, seeing


@planted("turret.data.ranges:groups", "data/test_vocabulary.py")
def a_group_ends_before_it_reaches_its_limit(original: Function) -> Function:
    def groups(offsets: Any, limit: int) -> Any:
        return original(offsets, limit - 1)

    return groups


@planted("turret.data.events.ids:as_keys", "data/test_events.py")
def a_text_like_007_becomes_the_integer_7(original: Function) -> Function:
    def as_keys(texts: pl.Series, dtype: pl.DataType) -> pl.Series:
        return texts if dtype == pl.String else texts.cast(pl.Int64, strict=False).drop_nulls()

    return as_keys


@planted("turret.data.events.id_interner:IdInterner._collision", "data/test_events.py")
def texts_that_share_a_hash_share_a_number(original: Function) -> Function:
    def collision(self: Any, text: str) -> int:
        keys = original.__globals__["_keys"](pl.Series([text]))
        return int(self._table.find(keys)[0])

    return collision


@planted("turret.data.vocabulary:Vocabulary.row", "data/test_vocabulary.py")
def true_is_looked_up_as_the_integer_1(original: Function) -> Function:
    return lambda self, outside_id: original(self, 1 if outside_id is True else outside_id)


@planted("turret.data.vocabulary:Vocabulary.known_rows", "data/test_vocabulary.py")
def row_0_is_dropped_where_another_id_is_unknown(original: Function) -> Function:
    def known_rows(self: Any, ids: Any) -> Any:
        rows, unknown = original(self, ids)
        return rows[rows > 0] if unknown else rows, unknown

    return known_rows


@planted("turret.data.id_table:IdTable._is_comparable", "data/test_vocabulary.py")
def the_id_table_takes_true_for_1(original: Function) -> Function:
    def is_comparable(self: Any, ids: Any) -> bool:
        is_integer = self._type is int
        return all(isinstance(one, int) for one in ids) if is_integer else original(self, ids)

    return is_comparable


@planted("turret.data.events.event_arrays:stable_order", "data/test_events.py")
def events_of_one_time_lose_the_order_of_the_log(original: Function) -> Function:
    def stable_order(keys: Any) -> Any:
        return np.lexsort((-np.arange(len(keys[0])), *keys[::-1]))

    return stable_order


@planted("turret.data.events.event_arrays:Events.sorted", "data/test_events.py")
def events_are_sorted_by_time_before_part(original: Function) -> Function:
    def in_order(self: Any) -> Any:
        keys = [self.users, self.times] if self.parts is None else [self.users, self.times, self.parts]
        return self.take(original.__globals__["stable_order"](keys))

    return in_order


@planted("turret.data.histories.filters:distinct_events", "data/test_histories.py")
def exact_duplicates_are_found_without_their_times(original: Function) -> Function:
    return lambda events, policy: original(events, "first" if policy == "exact" else policy)


@planted("turret.data.histories.filters:distinct_events", "data/test_labels.py")
def equal_negatives_of_two_events_are_duplicates(original: Function) -> Function:
    return lambda events, policy: original(replace(events, labels=None), policy)


@planted("turret.data.histories.filters:k_core", "data/test_histories.py")
def the_k_core_is_filtered_once(original: Function) -> Function:
    def k_core(histories: Any, item_count: int, min_user_events: int, min_item_events: int) -> Any:
        make, count = original.__globals__["Core"], original.__globals__["_count"]
        everything = make(np.ones(len(histories.offsets) - 1, dtype=bool), np.ones(item_count, dtype=bool))
        users, items = count(histories, everything, min_item_events > 1)
        return make(users >= min_user_events, items >= min_item_events)

    return k_core


@planted("turret.data.histories.splits:by_time", "data/test_histories.py")
def an_event_at_the_cut_belongs_to_the_part_before_it(original: Function) -> Function:
    def by_time(times: Any, offsets: Any, *cuts: float) -> Any:
        return original(times, offsets, *(np.nextafter(cut, np.inf) for cut in cuts))

    return by_time


@planted("turret.data.histories.splits:last_out", "data/test_histories.py")
def users_of_three_events_keep_all_in_train(original: Function) -> Function:
    return seeing(original, MINIMUM_EVENTS_TO_SPLIT=4)


@planted("turret.data.histories.splits:hold_out_tail", "data/test_histories.py")
def validation_of_one_file_takes_the_rounded_up_share(original: Function) -> Function:
    def hold_out_tail(splits: Any, offsets: Any, fraction: float) -> Any:
        held = np.ceil((splits[:, 0] - offsets[:-1]) * fraction).astype(np.int64)
        return np.column_stack([splits[:, 0] - held, splits[:, 1]])

    return hold_out_tail


@planted("turret.data.histories.splits:time_cuts", "data/test_histories.py")
def the_cut_of_validation_forgets_the_share_of_the_test(original: Function) -> Function:
    return lambda times, validation, test: original(times, validation - test, test)


@planted("turret.data.prepared:PreparedData.history", "data/test_prepared.py")
def the_history_before_validation_holds_validation(original: Function) -> Function:
    return lambda self, user, until: original(self, user, "test" if until == "validation" else until)


@planted("turret.data.prepared:PreparedData.item_counts", "data/test_prepared.py")
def item_counts_read_the_whole_log(original: Function) -> Function:
    def item_counts(self: Any, part: str = "train") -> Any:
        return np.bincount(self.event_items, minlength=len(self.item_ids))

    return item_counts


@planted("turret.data.prepared:PreparedData.verify", "data/test_prepared.py")
def verification_compares_sizes_alone(original: Function) -> Function:
    def verify(self: Any) -> None:
        sizes = {name: (self.folder / name).stat().st_size for name in self.manifest.files}
        if sizes != {name: file.bytes for name, file in self.manifest.files.items()}:
            original(self)

    return verify


@planted("turret.data.manifest:fingerprint", "data/test_fingerprints.py")
def the_fingerprint_does_not_tell_the_kind_of_times(original: Function) -> Function:
    return lambda files, time_kind: original(files, "")


@planted("turret.data.preparing.repeats:repeats_of", "data/test_preparing.py")
def targets_repeated_in_validation_count_as_those_of_the_test(original: Function) -> Function:
    return lambda events, splits, gap: original(events, splits[:, [0, 0]], gap)


@planted("turret.data.preparing.encoding:as_numbers", "data/test_features.py")
def infinity_is_a_number_feature(original: Function) -> Function:
    return lambda values: values if values.dtype.is_float() else original(values)


@planted("turret.data.features:trigrams", "data/test_features.py")
def trigrams_do_not_know_words(original: Function) -> Function:
    return lambda text: original(text.replace(" ", "_"))


@planted("turret.data.reading.times:_scaled", "data/test_times.py")
def fractions_of_a_millisecond_are_cut_off(original: Function) -> Function:
    def scaled(value: pl.Expr, per_second: int, is_integer: bool) -> pl.Expr:
        cut = (value * 1000 / per_second).cast(pl.Int64)
        return original(value, per_second, is_integer) if is_integer else cut

    return scaled


@planted("turret.data.files.staging:new_file", "data/test_files.py")
def a_new_file_is_not_synced(original: Any) -> Function:
    return contextmanager(seeing(original.__wrapped__, sync=lambda path: None))


@planted("turret.data.files.staging:sweep", "data/test_files.py")
def the_files_of_living_processes_are_removed(original: Function) -> Function:
    return seeing(original, tried_lock=lambda path: nullcontext(True))


@planted("turret.data.files.locks:locked", "data/test_files.py")
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


@planted("turret.data.datasets.archive:_checked", "data/test_datasets.py")
def a_member_of_an_archive_may_lead_out_of_its_folder(original: Function) -> Function:
    return lambda archive, member: member


@planted("turret.data.datasets.archive:_extract", "data/test_datasets.py")
def content_beyond_the_declared_sizes_is_written(original: Function) -> Function:
    return lambda archive, source, members, folder, limit: original(archive, source, members, folder, 1 << 62)


@planted("turret.data.datasets.download:_continues", "data/test_datasets.py")
def any_range_that_a_server_sends_is_appended(original: Function) -> Function:
    return lambda response, length: response.status == 206


@planted("turret.data.datasets.fetch:_complete", "data/test_datasets.py")
def a_folder_of_an_older_release_of_a_data_set_is_complete(original: Function) -> Function:
    def complete(folder: Any, record: Any, dataset: Any) -> Any:
        return original(folder, record.model_copy(update={"checksums": dataset.checksums}), dataset)

    return complete


@planted("turret.data.histories.merging:_known", "data/test_append.py")
def an_appended_event_that_the_data_has_already_is_added_again(original: Function) -> Function:
    return lambda before, added: np.zeros_like(original(before, added))


@planted("turret.data.histories.merging:_joined", "data/test_append.py")
def new_events_come_before_the_old_ones_of_their_time(original: Function) -> Function:
    find = original.__globals__["_positions"]
    return seeing(original, _positions=lambda before, added, side: find(before, added, "left"))


@planted("turret.data.preparing.append:_refuse_negatives", "data/test_append.py")
def negatives_are_appended_as_events(original: Function) -> Function:
    return lambda old, given: None


@planted("turret.data.histories.negatives:_same_group", "data/test_histories.py", "data/test_labels.py")
def a_negative_belongs_to_an_event_of_another_user(original: Function) -> Function:
    def same_group(events: Any, positions: Any, negatives: Any) -> Any:
        at = positions.clip(0, len(events) - 1)
        return original(events, positions, replace(negatives, users=events.users[at]))

    return same_group


@planted("turret.data.histories.negatives:NegativeFiles._write", "data/test_labels.py")
def negatives_of_a_later_block_of_users_begin_at_zero(original: Function) -> Function:
    def write(self: Any, block: Any) -> None:
        before, self.count = self.count, 0
        original(self, block)
        self.count += before

    return write


@planted("turret.data.events.labels:label_value", "data/test_labels.py")
def a_label_that_is_neither_0_nor_1_is_negative(original: Function) -> Function:
    def label_value(columns: Any, schema: pl.Schema) -> pl.Expr | None:
        value = original(columns, schema)
        return None if value is None else value.fill_null(-1)

    return label_value


@planted("turret.data.events.labels:check_labels", "data/test_labels.py")
def labels_of_0_and_of_minus_1_are_mixed(original: Function) -> Function:
    def check_labels(counts: Counter[int], columns: Any) -> None:
        original(Counter({1: counts[1], 0: counts[0] + counts[-1]}), columns)

    return check_labels


@planted("turret.data.object_stores.prepared_objects:_write", "data/test_object_stores.py")
def prepared_data_is_written_to_a_store_with_its_manifest_first(original: Function) -> Function:
    def write(objects: Any, folder: Any, names: list[str], old: list[str]) -> None:
        manifest = original.__globals__["MANIFEST"]
        objects.upload(folder, [manifest])
        objects.upload(folder, [name for name in names if name != manifest])
        objects.remove([name for name in old if name not in names])

    return write


@planted("turret.data.object_stores.prepared_objects:_is_there", "data/test_object_stores.py")
def a_fetched_copy_is_taken_for_its_data_without_a_look_at_its_files(original: Function) -> Function:
    return seeing(original, hash_all=lambda paths: ANY)
