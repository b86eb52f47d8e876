"""Faults of reading, preparing and fetching events, queries and vectors."""

import re
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from tests.planted.fault import planted, seeing


@planted("data.events.ids:as_keys", "data/test_events.py")
def a_text_like_007_becomes_the_integer_7(original: Any, texts: Any, dtype: Any) -> Any:
    return texts if dtype == pl.String else texts.cast(pl.Int64, strict=False).drop_nulls()


@planted("data.events.ids:IdInterner._collision", "data/test_events.py")
def texts_that_share_a_hash_share_a_number(original: Any, self: Any, text: Any) -> Any:
    (key,) = pl.Series([text]).hash()
    return int(self._numbers[np.searchsorted(self._keys, np.uint64(key))])


@planted("data.ranges:stable_order", "data/test_events.py")
def events_of_one_time_lose_the_order_of_the_log(original: Any, keys: Any) -> Any:
    return np.lexsort((-np.arange(len(keys[0])), *keys[::-1]))


@planted("data.histories.duplicates:Merging.kept", "data/test_histories.py")
def exact_duplicates_are_found_without_their_times(original: Any, self: Any, *given: Any) -> Any:
    return original(replace(self, policy="first") if self.policy == "exact" else self, *given)


@planted("data.histories.histories:k_core", "data/test_histories.py")
def the_k_core_is_filtered_once(
    original: Any, histories: Any, min_user_events: Any, min_item_events: Any
) -> Any:
    everything = [np.ones(size, dtype=bool) for size in (len(histories.offsets) - 1, len(histories.items))]
    users, items = original.__globals__["_count"](histories, everything, min_item_events > 1)
    return users >= min_user_events, items >= min_item_events


@planted("data.histories.partition:by_time", "data/test_histories.py")
def an_event_at_the_cut_belongs_to_the_part_before_it(
    original: Any, times: Any, offsets: Any, *cuts: Any
) -> Any:
    return original(times, offsets, *(np.nextafter(cut, np.inf) for cut in cuts))


@planted("data.prepared:PreparedData.history", "data/test_prepared.py")
def the_history_before_validation_holds_validation(original: Any, self: Any, user: Any, until: Any) -> Any:
    return original(self, user, "test" if until == "validation" else until)


@planted("data.prepared:PreparedData.given_negatives", "end_to_end/test_as_measured.py")
def negatives_of_every_kind_are_of_one(original: Any, self: Any, users: Any, ends: Any) -> Any:
    given = original(self, users, ends)
    return given._replace(kinds=np.full_like(given.kinds, -1))


@planted("data.prepared:PreparedData.verify", "data/test_prepared.py")
def verification_compares_sizes_alone(original: Any, self: Any) -> Any:
    sizes = {name: (self.folder / name).stat().st_size for name in self.manifest.files}
    if sizes != {name: file.bytes for name, file in self.manifest.files.items()}:
        original(self)


@planted("data.files:new_file", "data/test_files.py")
def a_new_file_is_not_synced(original: Any, *given: Any, **named: Any) -> Any:
    return contextmanager(seeing(original.__wrapped__, sync=lambda path: None))(*given, **named)


@planted("data.files:locked", "data/test_files.py")
@contextmanager
def several_threads_hold_the_lock_of_a_folder(original: Any, folder: Any) -> Any:
    folder.stat()
    yield


@planted("data.preparing.prepare:new_prepared_folder", "data/test_preparing.py")
def overwrite_deletes_a_folder_that_is_no_prepared_data(original: Any, target: Any, overwrite: Any) -> Any:
    return (original.__globals__["new_folder"] if overwrite else original)(target, overwrite)


@planted("data.fetching.datasets:_verify", "data/test_datasets.py")
def a_data_set_is_unpacked_whatever_its_checksum(original: Any, archive: Any, dataset: Any) -> Any:
    pass


@planted("data.histories.partition:last_out", "data/test_kinds.py")
def the_last_events_are_held_out_though_they_are_no_targets(
    original: Any, offsets: Any, targets: Any = None
) -> Any:
    return original(offsets)


@planted("data.events.events:_values", "data/test_kinds.py")
def the_weight_of_a_kind_replaces_that_of_the_row(
    original: Any, schema: Any, columns: Any, *others: Any
) -> Any:
    values = original(schema, columns, *others)
    by_kind = original(schema, columns.model_copy(update={"weight": None}), *others)
    return values | {name: by_kind.get(name, values[name]) for name in values}


@planted("data.events.events:with_strangers", "data/test_sessions.py")
def a_login_reaches_across_the_pause_that_ends_a_session(original: Any, *others: Any) -> Any:
    return original(*others[:-1], None)


@planted("data.events.events:with_strangers", "data/test_sources.py")
def a_login_names_the_sessions_of_its_own_source_alone(
    original: Any, sources: Any, part: Any, gap: Any
) -> Any:
    rows, notes = zip(*(original([source], part, gap) for source in sources), strict=True)
    return [of_source for (of_source,) in rows], notes[0]


@planted("data.events.events:unknown_value", "data/test_sources.py")
def a_value_that_has_no_kind_is_left_out_in_silence(original: Any, columns: Any, settings: Any) -> Any:
    return []


@planted("data.events.events:_quantity", "data/test_sources.py")
def quantities_of_a_source_have_the_sign_of_its_file(
    original: Any, name: Any, settings: Any, schema: Any
) -> Any:
    return original(name, settings.model_copy(update={"quantity_sign": 1}), schema)


@planted("data.events.log:Log.checked", "data/test_sources.py")
def half_of_all_sources_may_be_bad_in_one(original: Any, self: Any, count: Any, bad_rows: Any) -> Any:
    every = original(self, count, bad_rows)
    files = [file for rows in every for file in rows.files]
    return [type(every[0])(files, count, [bad for rows in every for bad in rows.bad_rows])]


@planted("data.events.log:SourceRows.prefix", "data/test_sources.py")
def bad_rows_are_counted_over_all_sources(original: Any, self: Any) -> Any:
    return ""


@planted("data.events.events:kind_name", "data/test_sources.py")
def a_map_of_values_to_kinds_is_not_read(original: Any, columns: Any, settings: Any, *others: Any) -> Any:
    return original(columns, settings.model_copy(update={"kinds": {}}), *others)


@planted("data.preparing.append:appended_columns", "data/test_sources.py")
def an_appended_file_of_a_source_has_the_columns_of_a_dump(
    original: Any, source: Any, manifest: Any, *others: Any
) -> Any:
    settings = {name: value for name, value in manifest.settings.items() if name != "sources"}
    return original(source, manifest.model_copy(update={"settings": settings}), *others)


@planted("data.fetching.downloads:_Encrypted.redirect_request", "data/test_downloads.py")
def a_download_is_sent_on_to_an_address_that_is_not_encrypted(original: Any, self: Any, *given: Any) -> Any:
    return super(type(self), self).redirect_request(*given)


@planted("data.fetching.downloads:_length", "data/test_downloads.py")
def a_download_that_breaks_off_is_read(original: Any, headers: Any) -> Any:
    return None


@planted("data.preparing.append:_known", "data/test_append.py")
def an_appended_event_that_the_data_has_already_is_added_again(original: Any, events: Any) -> Any:
    return np.zeros_like(original(events))


@planted("data.preparing.append_settings:_refuse", "data/test_append.py")
def negatives_are_appended_as_events(original: Any, old: Any, before: Any, given: Any) -> Any:
    columns = old.manifest.columns.model_copy(update={"label": None})
    original(replace(old, manifest=old.manifest.model_copy(update={"columns": columns})), before, {})


@planted("data.histories.negatives:_same_group", "data/test_histories.py", "data/test_labels.py")
def a_negative_belongs_to_an_event_of_another_user(
    original: Any, events: Any, positions: Any, negatives: Any
) -> Any:
    at = positions.clip(0, len(events) - 1)
    return original(events, positions, replace(negatives, users=events.users[at]))


@planted("data.events.labels:label_value", "data/test_labels.py")
def a_label_that_is_neither_0_nor_1_is_negative(original: Any, name: Any, dtype: Any) -> Any:
    return original(name, dtype).fill_null(-1)


@planted("data.reading.queries:_part_of", "data/test_queries.py")
def queries_are_divided_by_their_length(original: Any, text: Any) -> Any:
    return int(len(text or "") > 16)


@planted("data.reading.queries:id_of_text", "data/test_queries.py")
def a_long_text_is_cut_to_an_id(original: Any, text: Any) -> Any:
    return text[:512]


@planted("data.preparing.catalogs:_shared_grams", "data/test_queries.py")
def each_tower_has_grams_of_its_own(original: Any, items: Any, queries: Any) -> Any:
    pass


@planted("data.prepared:PreparedData.history_ends", "data/test_queries.py")
def the_answers_of_a_query_are_its_history(original: Any, self: Any, until: Any) -> Any:
    return {"validation": self.splits[:, 0], "test": self.splits[:, 1], "end": self.offsets[1:]}[until]


@planted("data.prepared:PreparedData.query_groups", "training/test_batches.py")
def questions_of_one_answer_are_negatives_of_each_other(original: Any, self: Any) -> Any:
    pass


@planted("data.features.columns:VectorRows.blocks", "data/test_vectors.py")
def a_missing_vector_is_that_of_the_first_row(original: Any, self: Any) -> Any:
    return original(replace(self, rows=np.maximum(self.rows, 0)))


@planted("data.preparing.vectors:_checked", "data/test_vectors.py")
def vectors_are_not_checked(original: Any, vectors: Any, where: Any) -> Any:
    return vectors


@planted("data.features.texts:levels", "data/test_features.py")
def the_blanks_of_a_path_are_tried_from_each_of_them(original: Any, path: Any) -> Any:
    return original("/".join(re.split(r"\s*[>/|]\s*", path)))


@planted("data.files:scratch_folder", "service/test_stores_sqlite.py")
def folders_of_killed_processes_stay(original: Any, *given: Any) -> Any:
    return contextmanager(seeing(original.__wrapped__, sweep=lambda *folder: []))(*given)


@planted("data.reading.markup:_entity", "data/test_markup.py")
def entities_are_read_without_their_semicolon(original: Any, text: str) -> Any:
    return original.__globals__["unescape"](f"&{text}")


@planted("data.reading.tables:refuse_columns", "data/test_odd_files.py")
def a_name_in_the_form_of_a_pattern_stands_for_other_columns(original: Any, *given: Any) -> None:
    return None


@planted("data.preparing.feature_readings:_no_numbers", "data/test_features.py")
def a_column_of_prices_and_ranges_is_a_category_in_silence(original: Any, *given: Any) -> Any:
    return iter(())


@planted("data.preparing.encoding:_separator", "data/test_features.py")
def texts_with_commas_are_lists_if_parts_come_back(original: Any, texts: Any, stated: str) -> Any:
    return original(texts, stated or ",")


@planted("data.events.sessions:hashed", "data/test_sessions.py")
def events_without_a_session_share_one(original: Any, session: Any) -> Any:
    return original(session.fill_null("none"))


@planted("data.events.sessions:numbered", "data/test_sessions.py")
def a_session_goes_on_after_the_pause_that_ends_it(original: Any, events: Any, gap: Any) -> Any:
    return original(events, None)


@planted("data.databases.results:_reason", "data/test_databases.py")
def the_error_of_a_driver_is_told_with_the_password_in_it(original: Any, error: Any, password: Any) -> Any:
    return original(error, None)


@planted("data.databases.results:query_results", "data/test_databases.py")
def a_killed_read_leaves_its_files_beside_the_data(original: Any, *given: Any) -> Any:
    @contextmanager
    def kept(path: Any) -> Any:
        path.mkdir(parents=True)
        yield path

    return contextmanager(seeing(original.__wrapped__, temporary_folder=kept))(*given)


@planted("data.databases.results:with_since", "data/test_databases.py")
def every_appended_query_reads_the_whole_table(original: Any, query: Any, since: Any) -> Any:
    return original(query, None)


@planted("data.databases.addresses:text_of", "data/test_databases.py")
def a_sentence_about_a_database_shows_its_password(original: Any, place: Any) -> str:
    return str(place)


@planted("data.databases.results:_refuse_password", "data/test_databases.py")
def the_data_keeps_a_query_with_a_password(original: Any, option: Any, query: Any) -> None:
    return None
