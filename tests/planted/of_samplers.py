"""Faults of samplers: expected counts, the positive's exclusion, renewal, and what they learn."""

import math
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch

from tests.planted.fault import Function, planted, seeing


@planted("turret.training.samplers.core.contract:drawn_from", "contracts/test_samplers.py")
def the_log_count_lacks_the_number_of_candidates(original: Function) -> Function:
    def drawn_from(ids: Any, log_q: Any, *positives: Any) -> Any:
        return replace(original(ids, log_q, *positives), log_count=log_q)

    return drawn_from


@planted(
    "turret.training.samplers.core.snapshot:SnapshotSampler.refresh", "training/test_samplers_quadratic.py"
)
def a_snapshot_is_the_tensor_of_the_model_itself(original: Function) -> Function:
    def refresh(self: Any, item_vectors: Any) -> None:
        original(self, item_vectors)
        self._vectors = item_vectors.detach()

    return refresh


@planted(
    "turret.training.samplers.fixed.popularity:ExactHeadSampler.__init__",
    "training/test_samplers_popularity.py",
)
def the_counts_of_the_tail_are_shares_of_the_whole(original: Function) -> Function:
    def initialise(self: Any, weights: Any, exact: int, negatives: int, device: Any) -> None:
        original(self, weights, exact, negatives, device)
        if len(self.others):
            self.log_counts[self.others] += math.log(weights[self.others].sum() / weights.sum())

    return initialise


@planted("turret.training.batches.batches:PreparedStatistics.item_counts", "training/test_batches.py")
def weights_by_popularity_count_the_test_part(original: Function) -> Function:
    def item_counts(self: Any) -> Any:
        return sum(self.data.item_counts(part) for part in ("train", "validation", "test"))

    return item_counts


@planted(
    "turret.training.samplers.from_batch.frequency:StreamingFrequency.observe",
    "training/test_samplers_from_batch.py",
)
def the_clock_of_a_stream_counts_batches(original: Function) -> Function:
    def observe(self: Any, positives: Any) -> None:
        before = self.now
        original(self, positives)
        self.now = before + 1

    return observe


@planted(
    "turret.training.samplers.from_batch.in_batch:CrossBatchSampler._join",
    "training/test_samplers_from_batch.py",
)
def the_queue_never_drops_a_batch(original: Function) -> Function:
    def join(self: Any, positives: Any, vectors: Any) -> None:
        with patch.object(self, "batches", 1 << 30):
            original(self, positives, vectors)

    return join


@planted(
    "turret.training.samplers.from_batch.in_batch:InBatchSampler.log_expected",
    "contracts/test_samplers.py",
)
def candidates_of_the_batch_are_expected_once(original: Function) -> Function:
    return lambda self, query, positives, ids: self.frequency.log_share(ids)


@planted("turret.training.samplers.registry:MixedSampler.draw", "contracts/test_samplers.py")
def each_part_of_a_union_counts_for_itself(original: Function) -> Function:
    def kept(one: Any, **changes: Any) -> Any:
        return one if "log_count" in changes else replace(one, **changes)

    return seeing(original, replace=kept)


@planted(
    "turret.training.samplers.adaptive.dense:TwoPassSampler._log_weights",
    "training/test_samplers_adaptive.py",
)
def the_second_pass_draws_by_uncorrected_scores(original: Function) -> Function:
    return lambda self, query, pool: original(self, query, pool) + pool.log_count


@planted(
    "turret.training.samplers.adaptive.features:FourierFeaturesSampler.follow",
    "contracts/test_samplers.py",
)
def the_features_of_renewed_items_stay(original: Function) -> Function:
    def follow(self: Any, rows: slice) -> None:
        if rows.stop - rows.start == self.item_count:
            original(self, rows)

    return follow


@planted(
    "turret.training.samplers.adaptive.ngram:AdaptiveNgramSampler.observe", "training/test_samplers_ngram.py"
)
def n_grams_learn_from_uncorrected_scores(original: Function) -> Function:
    def observe(self: Any, draw: Any, positive: Any, drawn: Any) -> None:
        original(self, replace(draw, log_count=torch.zeros_like(draw.log_count)), positive, drawn)

    return observe


@planted(
    "turret.training.samplers.kernel.quadratic:QuadraticSampler.__init__",
    "training/test_samplers_quadratic.py",
)
def the_quadratic_kernel_is_of_the_score_before_the_temperature(original: Function) -> Function:
    def initialise(self: Any, settings: Any, context: Any) -> None:
        original(self, settings, context)
        self.scale = settings.alpha

    return initialise


@planted(
    "turret.training.samplers.kernel.quadratic:KernelSums._pick_blocks", "training/test_samplers_kernel.py"
)
def the_mass_of_the_excluded_row_stays_in_its_block(original: Function) -> Function:
    def pick_blocks(self: Any, query: Any, counts: Any, excluded: Any, random: Any) -> Any:
        return original(self, query, counts, torch.full_like(excluded, -1), random)

    return pick_blocks
