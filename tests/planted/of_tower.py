"""Faults of bundles, filters, indexes, retrieval and towers."""

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from tests.planted.fault import Function, planted, seeing


@planted("turret.tower.format.atomic_publish:atomic_folder", "tower/test_versions.py")
def a_published_bundle_is_not_synced(original: Any) -> Function:
    return contextmanager(seeing(original.__wrapped__, sync=lambda path: None))


@planted("turret.tower.format.atomic_publish:atomic_folder", "tower/test_versions.py")
def published_files_can_be_written_to(original: Any) -> Function:
    no_change = SimpleNamespace(chmod=lambda path, mode: None)
    return contextmanager(seeing(original.__wrapped__, os=no_change))


@planted("turret.tower.format.safe_open:_identity", "tower/test_versions.py")
def a_file_written_to_with_its_old_times_counts_as_verified(original: Function) -> Function:
    return lambda status: original(status)._replace(changed=status.st_mtime_ns)


@planted("turret.tower.format.pointer:is_version", "tower/test_format.py")
def the_name_of_a_version_is_checked_at_its_beginning_alone(original: Function) -> Function:
    return lambda name: original(name[:1])


@planted("turret.tower.format.sections:Sections.steps", "tower/test_format.py")
def offsets_of_a_section_may_decrease(original: Function) -> Function:
    return lambda self, name, length, last: self.array(name, "int64", length)


@planted("turret.tower.format.snapshot:take_snapshot", "tower/test_versions.py")
def a_snapshot_does_not_see_a_folder_moved_away_and_back(original: Function) -> Function:
    os = original.__globals__["os"]
    nothing = os.stat_result([0] * 10)
    names = {"lstat": lambda path: nothing, "stat": lambda path: nothing, "scandir": os.scandir}
    return seeing(original, os=SimpleNamespace(**names))


@planted("turret.tower.format.integrity:check_vectors", "tower/test_bundle.py")
def lengths_of_unit_vectors_are_not_checked(original: Function) -> Function:
    return seeing(original, _check_lengths=lambda norms: None)


@planted("turret.tower.format.manifest:read_manifest", "tower/test_format.py")
def the_manifest_is_read_without_its_checksum(original: Function) -> Function:
    return seeing(original, _check_digest=lambda folder, text: None)


@planted("turret.tower.bundle.bundle:load", "tower/test_versions.py")
def the_record_of_a_damaged_version_stays(original: Function) -> Function:
    return seeing(original, forget_verified=lambda root, version: None)


@planted("turret.tower.bundle.bundle:load", "tower/test_versions.py")
def a_version_that_was_never_live_is_trusted_by_its_record(original: Function) -> Function:
    return lambda root, version, trust_note=False, content=None: original(root, version, True, content)


@planted("turret.tower.bundle.publish:publish", "tower/test_publish.py")
def every_publication_becomes_current(original: Function) -> Function:
    return seeing(original, current=lambda root: None)


@planted("turret.tower.bundle.golden:difference", "tower/test_bundle.py")
def a_score_that_is_not_a_number_is_no_difference(original: Function) -> Function:
    def difference(expected: Any, served: Any) -> Any:
        return original(expected, replace(served, scores=np.nan_to_num(served.scores)))

    return difference


@planted("turret.tower.catalog.masks:MaskCache.get", "tower/test_catalog.py")
def the_mask_cache_drops_the_oldest(original: Function) -> Function:
    def get(self: Any, key: Any, make: Any, origin: object = None) -> Any:
        return self._masks[key] if key in self._masks else original(self, key, make, origin)

    return get


@planted("turret.tower.catalog.filters:Filter.cached", "tower/test_catalog.py")
def masks_of_one_condition_over_other_rows_are_shared(original: Function) -> Function:
    return lambda self, rows, make: original(self, None, make)


@planted("turret.tower.catalog.conditions:_typed", "tower/test_catalog.py")
def true_equals_1_in_a_condition(original: Function) -> Function:
    return lambda value: (False, value)


@planted("turret.tower.catalog.columns:TermColumn.codes_within", "tower/test_catalog.py")
def an_open_upper_bound_of_texts_is_closed(original: Function) -> Function:
    return lambda self, interval: original(self, replace(interval, high_open=False))


@planted("turret.tower.catalog.filters:_Reader._count", "tower/test_catalog.py")
def the_limit_of_conditions_is_not_counted(original: Function) -> Function:
    return lambda self, count, where: None


@planted("turret.tower.index.faiss_index.order:ordered", "contracts/test_indexes.py")
def ties_are_left_in_the_order_in_which_they_are_found(original: Function) -> Function:
    def ordered(rows: Any, scores: Any, k: int) -> Any:
        order = np.argsort(-scores, kind="stable")[:k]
        return rows[order], scores[order]

    return ordered


@planted("turret.tower.index.index:ExactIndex.nearest", "contracts/test_indexes.py")
def rows_that_tie_behind_the_cut_do_not_compete(original: Function) -> Function:
    return lambda self, vector, k, allowed=None: self._fetch(
        vector, min(k, self._count if allowed is None else allowed.count), allowed
    )


@planted("turret.tower.index.approximate:_selector", "contracts/test_indexes.py")
def the_bitmap_of_allowed_rows_has_its_bits_reversed(original: Function) -> Function:
    module = original.__globals__["faiss"]
    return lambda allowed: module.IDSelectorBitmap(np.packbits(allowed.mask))


@planted("turret.tower.index.approximate:_between", "tower/test_index.py")
def interpolated_search_parameters_have_the_candidates_of_the_smaller_k(original: Function) -> Function:
    def between(below: Any, above: Any, k: int) -> Any:
        return original(below, above, k).model_copy(update={"candidates": below.candidates})

    return between


@planted("turret.tower.index.planner:Planner._query", "tower/test_index.py")
def excluded_rows_shorten_the_answer(original: Function) -> Function:
    def query(self: Any, vector: Any, k: int, excluded: Any, allowed: Any) -> Any:
        index, vectors, first, most, out, kind = original(self, vector, k, excluded, allowed)
        return index, vectors, min(first, k), min(most, k), out, kind

    return query


@planted("turret.tower.index.planner:Planner._query", "tower/test_index.py")
def absolute_scores_are_searched_in_one_direction(original: Function) -> Function:
    def query(self: Any, vector: Any, *conditions: Any) -> Any:
        index, vectors, *others = original(self, vector, *conditions)
        return (index, np.abs(vectors) * 0 + vectors[:1] if self._absolute else vectors, *others)

    return query


@planted("turret.tower.index.planner:Planner._query", "contracts/test_indexes.py")
def a_vector_that_is_not_finite_is_searched_for(original: Function) -> Function:
    return seeing(original, check_finite=lambda vector: None)


@planted("turret.tower.retrieval.diversity:Cap.take", "tower/test_retrieval.py")
def a_value_repeated_in_one_item_counts_twice(original: Function) -> Function:
    return seeing(original, dict=SimpleNamespace(fromkeys=list))


@planted("turret.tower.retrieval.diversity:marginal_relevance", "tower/test_retrieval.py")
def diversity_gives_the_order_of_the_scores(original: Function) -> Function:
    def marginal_relevance(scores: Any, vectors: Any, k: int, weight: float, *take: Any) -> Any:
        return original(scores, vectors, k, 0.0, *take)

    return marginal_relevance


@planted("turret.tower.retrieval.retriever:Retriever.nearest", "tower/test_retrieval.py")
def scores_are_not_divided_by_the_temperature(original: Function) -> Function:
    def nearest(self: Any, *asked: Any, **named: Any) -> Any:
        with patch.object(self, "_temperature", np.float32(1.0)):
            return original(self, *asked, **named)

    return nearest


@planted("turret.tower.tuning.recall:split_queries", "tower/test_tuning.py")
def the_queries_that_tune_an_index_measure_it_too(original: Function) -> Function:
    return lambda queries, count: (original(queries, count)[0], np.ascontiguousarray(queries))


@planted("turret.tower.kernels.dropout:_Drop.backward", "tower/test_kernels.py")
def the_backward_pass_drops_other_values(original: Function) -> Function:
    def backward(context: Any, *slopes: Any) -> Any:
        return original(SimpleNamespace(dropped=context.dropped, seed=context.seed + 1), *slopes)

    return backward


@planted("turret.tower.layers.packed:PackedHistories.sizes", "tower/test_layers.py")
def sizes_of_windows_count_the_left_out_item(original: Function) -> Function:
    return lambda self: original(replace(self, left_out=None))


@planted("turret.tower.layers.packed:PackedHistories.distinct", "tower/test_layers.py")
def windows_that_leave_out_other_items_are_one(original: Function) -> Function:
    return lambda self: original(replace(self, left_out=None))


@planted("turret.tower.layers.attention:CausalAttention.forward", "tower/test_user_towers.py")
def attention_in_training_reads_the_future(original: Function) -> Function:
    attend = original.__globals__["scaled_dot_product_attention"]

    def everywhere(query: Any, key: Any, value: Any, is_causal: bool) -> Any:
        return attend(query, key, value)

    return seeing(original, scaled_dot_product_attention=everywhere)


@planted("turret.tower.layers.segments:lay_out", "tower/test_user_towers.py")
def an_example_reads_the_step_behind_its_window(original: Function) -> Function:
    return lambda starts, ends: original(starts, ends + 1)


@planted("turret.tower.towers.attentive:AttentiveUserTower.served", "tower/test_user_towers.py")
def served_padding_weighs_in_the_attentive_mean(original: Function) -> Function:
    def served(self: Any, history: Any, length: Any, *others: Any) -> Any:
        return original(self, history, torch.full_like(length, history.shape[1]), *others)

    return served


@planted("turret.tower.towers.scoring:scored_users", "tower/test_towers.py")
def the_last_column_of_a_user_scales_the_biases(original: Function) -> Function:
    def scored_users(vectors: Any, scoring: Any) -> Any:
        users = original(vectors, scoring)
        return torch.cat([users[..., :-1], vectors[..., -1:]], dim=-1) if scoring.item_bias else users

    return scored_users


@planted("turret.tower.towers.scoring:cross_scores", "tower/test_towers.py")
def scores_of_many_items_lack_the_temperature(original: Function) -> Function:
    return lambda users, items, scoring: original(users * scoring.temperature, items, scoring)


@planted("turret.tower.inference.encoder:Encoder._history", "tower/test_inference.py")
def the_encoder_reads_the_oldest_items(original: Function) -> Function:
    return lambda self, history, more: original(self, history[: self._history_length], more)


@planted("turret.tower.times:time_inputs", "tower/test_towers.py")
def a_gap_before_the_request_is_negative(original: Function) -> Function:
    return lambda events, moments: ((moments - events).astype(np.float32), original(events, moments)[1])


@planted("turret.tower.engines.circuit:Circuit.fail", "tower/test_engines.py")
def a_failed_trial_closes_the_circuit(original: Function) -> Function:
    return lambda self, token: self.succeed(token) if token is self._trial else original(self, token)


@planted("turret.tower.engines.circuit:Circuit.succeed", "tower/test_engines.py")
def a_call_from_before_the_opening_closes_the_circuit(original: Function) -> Function:
    return lambda self, token: original(self, self._trial)


@planted("turret.tower.format.engine_settings:EngineSettings.breadth", "tower/test_format.py")
def between_two_measured_shares_the_smaller_effort_holds(original: Function) -> Function:
    return seeing(original, max=min)
