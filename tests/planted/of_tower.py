"""Faults of bundles, filters, indexes, retrieval, repeats and towers."""

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from tests.planted.fault import planted, seeing


@planted("tower.format.listing:atomic_folder", "tower/test_versions.py")
def a_published_bundle_is_not_synced(original: Any, *given: Any) -> Any:
    return contextmanager(seeing(original.__wrapped__, sync=lambda path: None))(*given)


@planted("tower.bundle.bundle:Bundle.open", "tower/test_bundle.py")
def only_the_sizes_of_files_are_compared_when_a_version_is_opened(
    original: Any, *given: Any, **named: Any
) -> Any:
    def check_sizes(folder: Any, manifest: Any) -> Any:
        assert all((folder / name).stat().st_size == one.bytes for name, one in manifest.files.items())

    return seeing(original, check_files=check_sizes)(*given, **named)


@planted("tower.format.checksums:check_parts", "tower/test_bundle.py")
def lengths_of_unit_vectors_are_not_checked(original: Any, *given: Any) -> Any:
    return seeing(original, _UNIT_TOLERANCE=np.inf)(*given)


@planted("tower.format.manifest:read_manifest", "tower/test_format.py")
def the_manifest_is_read_without_its_checksum(original: Any, folder: Any) -> Any:
    return original.__globals__["Manifest"].model_validate_json((folder / "manifest.json").read_bytes())


@planted("tower.inference.feature_inputs:_alike", "tower/test_inference.py")
def lists_of_codes_are_padded_to_the_longest_of_all(original: Any, encoded: Any) -> Any:
    return iter([list(encoded)])


@planted("tower.format.sections:Sections.starts", "tower/test_catalog.py")
def bounds_of_slices_are_believed(original: Any, self: Any, name: Any, end: Any, length: Any = None) -> Any:
    return self.array(name, "int64", length)


@planted("tower.catalog.filters:Filter.cached", "tower/test_catalog.py")
def masks_of_one_condition_over_other_rows_are_shared(original: Any, self: Any, rows: Any, make: Any) -> Any:
    return original(self, None, make)


@planted("tower.catalog.masks:bytes_of", "tower/test_catalog.py")
def the_keys_of_cached_masks_weigh_nothing(original: Any, value: Any) -> Any:
    return 0


@planted("tower.catalog.columns:scalar_kind", "tower/test_catalog.py")
def true_equals_1_in_a_condition(original: Any, value: Any) -> Any:
    return "number" if isinstance(value, bool) else original(value)


@planted("tower.index.index:ordered", "contracts/test_indexes.py")
def ties_are_left_in_the_order_in_which_they_are_found(original: Any, rows: Any, scores: Any, k: Any) -> Any:
    order = np.argsort(-scores, kind="stable")[:k]
    return rows[order], scores[order]


@planted("tower.index.index:ExactIndex._of_all", "contracts/test_indexes.py")
def of_rows_that_tie_at_the_cut_the_last_ones_stay(
    original: Any, self: Any, vector: Any, k: Any, allowed: Any
) -> Any:
    rows, scores = original(self, vector, self._count if allowed is None else allowed.count, allowed)
    order = np.lexsort((-rows, -scores))[:k]
    return rows[order], scores[order]


@planted("tower.index.approximate:_selector", "contracts/test_indexes.py")
def the_bitmap_of_allowed_rows_has_its_bits_reversed(original: Any, allowed: Any) -> Any:
    return original.__globals__["faiss"].IDSelectorBitmap(np.packbits(allowed.mask))


@planted("tower.index.soundness:_check_lists", "tower/test_index.py")
def rows_of_lists_are_not_compared_with_the_number_of_items(
    original: Any, lists: Any, count: Any, block: Any
) -> None:
    assert sum(lists.list_size(number) for number in range(lists.nlist)) == count


@planted("tower.index.planner:Planner._merged", "tower/test_index.py")
def the_first_interest_of_a_user_answers_for_all(original: Any, self: Any, answers: Any, count: int) -> Any:
    return answers[0]


@planted("tower.index.planner:best_products", "service/test_observing_quality.py")
def recall_is_measured_by_the_mean_of_the_interests(
    original: Any, vectors: Any, user: Any, absolute: bool
) -> Any:
    return original(vectors, np.atleast_2d(user).mean(axis=0), absolute)


@planted("tower.towers.model:fitting_vectors", "tower/test_towers.py")
def every_target_trains_the_first_interest(original: Any, interests: Any, *given: Any) -> Any:
    return interests[:, 0]


@planted("tower.layers.attention:AttentionPooling.padded", "contracts/test_user_towers.py")
def padding_counts_in_the_means_of_a_request(original: Any, self: Any, history: Any, length: Any) -> Any:
    return original(self, history, torch.full_like(length, history.shape[1]))


@planted("tower.index.planner:Planner._query", "tower/test_index.py")
def excluded_rows_shorten_the_answer(
    original: Any, self: Any, vector: Any, k: Any, excluded: Any, allowed: Any
) -> Any:
    return original(self, vector, k, excluded, allowed)._replace(fetch=k, most=k)


@planted("tower.retrieval:marginal_relevance", "tower/test_retrieval.py")
def diversity_gives_the_order_of_the_scores(
    original: Any, scores: Any, vectors: Any, k: Any, weight: Any, *take: Any
) -> Any:
    return original(scores, vectors, k, 0.0, *take)


@planted("tower.retrieval:Cap.take", "tower/test_retrieval.py", "service/test_ranking.py")
def a_value_that_was_taken_as_often_as_it_may_stays_open(original: Any, self: Any, place: Any) -> None:
    before = self.is_open.copy()
    original(self, place)
    self.is_open[:] = before
    self.is_open[place] = False


@planted("tower.retrieval:Retriever.nearest", "tower/test_retrieval.py")
def scores_are_not_divided_by_the_temperature(original: Any, self: Any, *asked: Any, **named: Any) -> Any:
    with patch.object(self, "_temperature", np.float32(1.0)):
        return original(self, *asked, **named)


@planted("tower.retrieval:Retriever._scored", "tower/test_retrieval.py", "service/test_http_recommend.py")
def used_items_are_ranked_though_a_filter_refuses_them(
    original: Any, self: Any, found: Any, vector: Any, k: Any, out: Any, allowed: Any, bonus: Any
) -> Any:
    return original(self, found, vector, k, out, None, bonus)


@planted("tower.repeats:used_items", "tower/test_retrieval.py")
def the_first_use_of_an_item_counts_as_its_last(original: Any, events: Any, *others: Any) -> Any:
    times = None if events.times is None else events.times[::-1]
    return original(events._replace(times=times), *others)


@planted("tower.counted_kinds:CountedKinds.count", "service/test_http_events.py")
def an_item_that_was_consumed_for_some_days_never_comes_back(
    original: Any, self: Any, items: Any, kinds: Any, times: Any, asked: Any
) -> Any:
    return original(self, items, kinds, None if times is None else [asked] * len(times), asked)


@planted("tower.counted_kinds:CountedKinds.count", "tower/test_inference.py")
def an_event_without_a_kind_has_the_first_one(original: Any, *given: Any) -> Any:
    counted = original(*given)
    return counted._replace(codes=np.maximum(counted.codes, 0))


@planted("tower.towers.model:KindLayer.forward", "tower/test_user_towers.py")
def an_unknown_kind_is_weighed_as_the_first(original: Any, self: Any, vectors: Any, kinds: Any) -> Any:
    return original(self, vectors, kinds.clamp(min=0))


@planted("tower.counted_kinds:CountedKinds._kept", "data/test_histories.py")
def the_service_reads_the_steps_of_a_visit_as_several_events(
    original: Any, self: Any, users: Any, items: Any, codes: Any, times: Any, are_read: Any
) -> Any:
    return np.ones(int(are_read.sum()), dtype=bool)


@planted("tower.repeats:Events.of_one", "service/test_http_slots.py")
def a_view_of_the_visit_that_goes_on_is_a_use(original: Any, *given: Any) -> Any:
    return original(*given[:4])


@planted("tower.repeats:Events.uses", "end_to_end/test_as_measured.py")
def a_cart_of_this_visit_is_a_use_of_its_item(original: Any, self: Any, merging: Any) -> Any:
    return self


@planted("tower.tuning.recall:split_queries", "tower/test_tuning.py")
def the_queries_that_tune_an_index_measure_it_too(original: Any, queries: Any, count: Any) -> Any:
    return original(queries, count)[0], np.ascontiguousarray(queries)


@planted("tower.kernels.elementwise:_Drop.backward", "tower/test_kernels.py")
def the_backward_pass_drops_other_values(original: Any, context: Any, *slopes: Any) -> Any:
    return original(SimpleNamespace(dropped=context.dropped, seed=context.seed + 1), *slopes)


@planted("tower.towers.transformer:CausalAttention.forward", "contracts/test_user_towers.py")
def attention_in_training_reads_the_future(original: Any, *given: Any) -> Any:
    attend = original.__globals__["scaled_dot_product_attention"]

    def everywhere(query: Any, key: Any, value: Any, is_causal: Any) -> Any:
        return attend(query, key, value)

    return seeing(original, scaled_dot_product_attention=everywhere)(*given)


@planted("tower.layers.packed:lay_out", "contracts/test_user_towers.py")
def an_example_reads_the_step_behind_its_window(original: Any, starts: Any, ends: Any) -> Any:
    return original(starts, ends + 1)


@planted("tower.towers.pooled:AttentiveUserTower.served", "contracts/test_user_towers.py")
def served_padding_weighs_in_the_attentive_mean(
    original: Any, self: Any, history: Any, length: Any, *others: Any
) -> Any:
    return original(self, history, torch.full_like(length, history.shape[1]), *others)


@planted("tower.towers.alike:inverse_frequencies", "end_to_end/test_questions.py")
def towers_begin_without_inverse_frequencies(original: Any, items: Any, values: Any) -> Any:
    return np.append(0.0, np.ones(len(values)))


@planted("tower.layers.feature_layers:VectorLayer.forward", "end_to_end/test_ready_vectors.py")
def a_missing_vector_is_zeros(original: Any, self: Any, vectors: Any) -> Any:
    return self.linear(torch.nan_to_num(vectors))


@planted("tower.inference.encoder:Encoder._inputs", "tower/test_inference.py")
def the_encoder_reads_the_oldest_items(original: Any, self: Any, histories: Any, *others: Any) -> Any:
    return original(self, [rows[: self._history_length] for rows in histories], *others)


@planted("tower.inference.encoder:Encoder._set", "tower/test_inference.py")
def a_served_set_has_an_item_for_each_use(original: Any, self: Any, *given: Any) -> Any:
    return given


@planted("tower.inference.encoder:Encoder.can_encode", "end_to_end/test_questions.py")
def a_text_without_a_known_gram_is_encoded(original: Any, self: Any, rows: Any, features: Any) -> Any:
    return True


@planted("tower.engines.circuit:Circuit.fail", "tower/test_engines.py")
def a_failed_trial_closes_the_circuit(original: Any, self: Any, token: Any) -> Any:
    return self.succeed(token) if token is self._trial else original(self, token)


@planted("tower.catalog.columns:TermColumn.codes_under", "tower/test_catalog.py")
def a_filter_by_path_splits_each_text_again(original: Any, self: Any, path: Any) -> Any:
    levels = original.__globals__["levels"]
    return np.array([code for code, term in enumerate(self._terms) if path in levels(term.decode())], int)


@planted("tower.catalog.conditions:Kept.mask", "service/test_http_rules.py")
def a_rule_is_evaluated_for_each_request(original: Any, self: Any, items: Any) -> Any:
    return self.inner.mask(items)


@planted("tower.tuning.choice:_best", "tower/test_tuning.py")
def an_index_that_misses_the_recall_on_all_queries_is_given_up(original: Any, *given: Any) -> Any:
    return seeing(original, MARGINS=(0.2,))(*given)
