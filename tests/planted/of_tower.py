"""Faults of bundles, filters, indexes, retrieval and towers."""

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from tests.planted.fault import Function, planted, seeing


@planted("turret.tower.format.listing:atomic_folder", "tower/test_versions.py")
def a_published_bundle_is_not_synced(original: Any) -> Function:
    return contextmanager(seeing(original.__wrapped__, sync=lambda path: None))


@planted("turret.tower.bundle.bundle:Bundle.open", "tower/test_bundle.py")
def only_the_sizes_of_files_are_compared_when_a_version_is_opened(original: Function) -> Function:
    def check_sizes(folder: Any, manifest: Any) -> None:
        assert all((folder / name).stat().st_size == one.bytes for name, one in manifest.files.items())

    return seeing(original, check_files=check_sizes)


@planted("turret.tower.format.checksums:check_parts", "tower/test_bundle.py")
def lengths_of_unit_vectors_are_not_checked(original: Function) -> Function:
    return seeing(original, _UNIT_TOLERANCE=np.inf)


@planted("turret.tower.format.manifest:read_manifest", "tower/test_format.py")
def the_manifest_is_read_without_its_checksum(original: Function) -> Function:
    return lambda folder: original.__globals__["Manifest"].model_validate_json(
        (folder / "manifest.json").read_bytes()
    )


@planted("turret.tower.catalog.filters:Filter.cached", "tower/test_catalog.py")
def masks_of_one_condition_over_other_rows_are_shared(original: Function) -> Function:
    return lambda self, rows, make: original(self, None, make)


@planted("turret.tower.catalog.columns:scalar_kind", "tower/test_catalog.py")
def true_equals_1_in_a_condition(original: Function) -> Function:
    return lambda value: "number" if isinstance(value, bool) else original(value)


@planted("turret.tower.index.faiss_calls:ordered", "contracts/test_indexes.py")
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


@planted("turret.tower.index.planner:Planner._query", "tower/test_index.py")
def excluded_rows_shorten_the_answer(original: Function) -> Function:
    def query(self: Any, vector: Any, k: int, excluded: Any, allowed: Any) -> Any:
        asked = original(self, vector, k, excluded, allowed)
        return asked._replace(fetch=k, most=k)

    return query


@planted("turret.tower.retrieval:marginal_relevance", "tower/test_retrieval.py")
def diversity_gives_the_order_of_the_scores(original: Function) -> Function:
    def marginal_relevance(scores: Any, vectors: Any, k: int, weight: float, *take: Any) -> Any:
        return original(scores, vectors, k, 0.0, *take)

    return marginal_relevance


@planted("turret.tower.retrieval:Retriever.nearest", "tower/test_retrieval.py")
def scores_are_not_divided_by_the_temperature(original: Function) -> Function:
    def nearest(self: Any, *asked: Any, **named: Any) -> Any:
        with patch.object(self, "_temperature", np.float32(1.0)):
            return original(self, *asked, **named)

    return nearest


@planted("turret.tower.tuning.recall:split_queries", "tower/test_tuning.py")
def the_queries_that_tune_an_index_measure_it_too(original: Function) -> Function:
    return lambda queries, count: (original(queries, count)[0], np.ascontiguousarray(queries))


@planted("turret.tower.kernels.elementwise:_Drop.backward", "tower/test_kernels.py")
def the_backward_pass_drops_other_values(original: Function) -> Function:
    def backward(context: Any, *slopes: Any) -> Any:
        return original(SimpleNamespace(dropped=context.dropped, seed=context.seed + 1), *slopes)

    return backward


@planted("turret.tower.towers.transformer:CausalAttention.forward", "contracts/test_user_towers.py")
def attention_in_training_reads_the_future(original: Function) -> Function:
    attend = original.__globals__["scaled_dot_product_attention"]

    def everywhere(query: Any, key: Any, value: Any, is_causal: bool) -> Any:
        return attend(query, key, value)

    return seeing(original, scaled_dot_product_attention=everywhere)


@planted("turret.tower.layers.packed:lay_out", "contracts/test_user_towers.py")
def an_example_reads_the_step_behind_its_window(original: Function) -> Function:
    return lambda starts, ends: original(starts, ends + 1)


@planted("turret.tower.towers.pooled:AttentiveUserTower.served", "contracts/test_user_towers.py")
def served_padding_weighs_in_the_attentive_mean(original: Function) -> Function:
    def served(self: Any, history: Any, length: Any, *others: Any) -> Any:
        return original(self, history, torch.full_like(length, history.shape[1]), *others)

    return served


@planted("turret.tower.inference.encoder:Encoder._inputs", "tower/test_inference.py")
def the_encoder_reads_the_oldest_items(original: Function) -> Function:
    return lambda self, histories, *others: original(
        self, [rows[: self._history_length] for rows in histories], *others
    )


@planted("turret.tower.engines.circuit:Circuit.fail", "tower/test_engines.py")
def a_failed_trial_closes_the_circuit(original: Function) -> Function:
    return lambda self, token: self.succeed(token) if token is self._trial else original(self, token)
