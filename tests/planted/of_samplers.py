"""Faults of samplers: expected counts, the positive's exclusion, renewal, and what they learn."""

import math
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch

from tests.planted.fault import Function, planted, seeing


@planted("turret.training.samplers.core.draw:drawn_with_replacement", "training/test_checks.py")
def the_log_count_lacks_the_number_of_candidates(original: Function) -> Function:
    def drawn_with_replacement(ids: Any, log_q: Any, positives: Any) -> Any:
        return replace(original(ids, log_q, positives), log_count=log_q[ids])

    return drawn_with_replacement


@planted("turret.training.samplers.core.snapshot:Snapshot.__init__", "training/test_samplers_quadratic.py")
def the_last_part_of_a_snapshot_is_never_renewed(original: Function) -> Function:
    def initialise(self: Any, item_count: int, refresh_every: int, device: Any) -> None:
        original(self, item_count, refresh_every, device)
        self.rows_a_step = max(1, item_count // refresh_every)

    return initialise


@planted("turret.training.samplers.core.snapshot:Snapshot.refresh", "training/test_samplers_quadratic.py")
def a_snapshot_is_the_tensor_of_the_model_itself(original: Function) -> Function:
    def refresh(self: Any, item_vectors: Any) -> None:
        original(self, item_vectors)
        self._vectors = item_vectors.detach()

    return refresh


@planted("turret.training.samplers.core.snapshot:Snapshot.restore", "training/test_samplers_quadratic.py")
def a_restored_snapshot_begins_at_its_first_row(original: Function) -> Function:
    def restore(self: Any, state: Any) -> None:
        original(self, state)
        self.position = 0

    return restore


@planted("turret.training.samplers.core.categorical:invert", "training/test_samplers_quadratic.py")
def a_position_is_drawn_that_has_no_mass(original: Function) -> Function:
    def invert(ends: Any, uniform: Any) -> Any:
        return torch.searchsorted(ends, uniform * ends[:, -1:], right=True).clamp(max=ends.shape[1] - 1)

    return invert


@planted(
    "turret.training.samplers.fixed.complement:ComplementSampler.draw", "training/test_samplers_popularity.py"
)
def without_the_positive_the_shares_of_the_others_stay(original: Function) -> Function:
    def draw(self: Any, query: Any, positives: Any, context: Any) -> Any:
        made = original(self, query, positives, context)
        return replace(made, log_count=made.log_count + self.log_others[positives, None])

    return draw


@planted(
    "turret.training.samplers.fixed.complement:ComplementSampler._others",
    "training/test_samplers_popularity.py",
)
def the_replacement_of_a_hit_may_be_a_hit(original: Function) -> Function:
    return lambda self, avoided, random: self.table.draw(len(avoided), random)


@planted(
    "turret.training.samplers.fixed.bernoulli:BernoulliSampler.__init__",
    "training/test_samplers_popularity.py",
)
def an_independent_item_comes_at_the_rate_of_its_probability(original: Function) -> Function:
    def initialise(self: Any, weights: Any, negatives: int, device: Any) -> None:
        original(self, weights, negatives, device)
        rates = original.__globals__["inclusion_chances"](weights, negatives)[self.sometimes]
        self.rate = float(rates.sum())
        self.table = original.__globals__["AliasTable"](rates) if len(rates) else None

    return initialise


@planted(
    "turret.training.samplers.fixed.unique:UniqueSampler.log_expected", "training/test_samplers_popularity.py"
)
def the_clock_of_a_candidate_ends_with_the_last_candidate(original: Function) -> Function:
    def log_expected(self: Any, query: Any, positives: Any, ids: Any) -> Any:
        with patch.object(self, "drawn", self.drawn[:0]):
            return original(self, query, positives, ids)

    return log_expected


@planted(
    "turret.training.samplers.fixed.exact_head:ExactHeadSampler.__init__",
    "training/test_samplers_popularity.py",
)
def the_counts_of_the_tail_are_shares_of_the_whole(original: Function) -> Function:
    def initialise(self: Any, weights: Any, exact: int, negatives: int, device: Any) -> None:
        original(self, weights, exact, negatives, device)
        if len(self.others):
            self.log_counts[self.others] += math.log(weights[self.others].sum() / weights.sum())

    return initialise


@planted("turret.training.samplers.fixed.given:GivenSampler.draw", "training/test_pairs.py")
def given_negatives_of_minus_one_are_item_zero(original: Function) -> Function:
    def draw(self: Any, query: Any, positives: Any, context: Any) -> Any:
        made = original(self, query, positives, context)
        return replace(made, valid=made.valid | (context.negatives < 0))

    return draw


@planted("turret.training.statistics:PreparedStatistics.item_counts", "training/test_statistics.py")
def weights_by_popularity_count_the_test_part(original: Function) -> Function:
    def item_counts(self: Any) -> Any:
        return sum(self.data.item_counts(part) for part in ("train", "validation", "test"))

    return item_counts


@planted("turret.training.statistics:PreparedStatistics.positive_counts", "training/test_objectives.py")
def positives_before_the_start_of_training_count(original: Function) -> Function:
    return lambda self: original.__globals__["target_counts"](self.data, self.context)


@planted(
    "turret.training.samplers.from_batch.streaming_frequency:StreamingFrequency.observe",
    "training/test_samplers_from_batch.py",
)
def the_clock_of_a_stream_counts_batches(original: Function) -> Function:
    def observe(self: Any, positives: Any) -> None:
        before = self.now
        original(self, positives)
        self.now = before + 1

    return observe


@planted(
    "turret.training.samplers.from_batch.streaming_frequency:StreamingFrequency._changed",
    "training/test_samplers_from_batch.py",
)
def contradicted_hits_still_weigh_in_the_mean_of_a_stream(original: Function) -> Function:
    return lambda self, *observed: original(self, *observed) & False


@planted(
    "turret.training.samplers.from_batch.cross_batch:CrossBatchSampler._join",
    "training/test_samplers_from_batch.py",
)
def the_queue_never_drops_a_batch(original: Function) -> Function:
    def join(self: Any, positives: Any, vectors: Any) -> None:
        with patch.object(self, "batches", 1 << 30):
            original(self, positives, vectors)

    return join


@planted(
    "turret.training.samplers.from_batch.frequency:KnownFrequency.__init__",
    "training/test_samplers_from_batch.py",
)
def smoothing_leaves_the_total_as_it_was(original: Function) -> Function:
    def initialise(self: Any, counts: Any, device: Any, smoothing: float = 0.0) -> None:
        original(self, counts, device, smoothing)
        if counts.sum():
            self.log_shares = self.log_shares + math.log(1.0 + smoothing * len(counts) / counts.sum())

    return initialise


@planted(
    "turret.training.samplers.from_batch.in_batch:InBatchSampler.log_expected",
    "training/test_samplers_from_batch.py",
)
def candidates_of_the_batch_are_expected_once(original: Function) -> Function:
    return lambda self, query, positives, ids: self.frequency.log_share(ids)


@planted("turret.training.samplers.union:MixedSampler.draw", "training/test_samplers_mixed.py")
def each_part_of_a_union_counts_for_itself(original: Function) -> Function:
    def kept(one: Any, **changes: Any) -> Any:
        return one if "log_count" in changes else replace(one, **changes)

    return seeing(original, replace=kept)


@planted("turret.training.samplers.union:MixedSampler.update", "training/test_samplers_mixed.py")
def the_parts_of_a_union_do_not_renew_their_vectors(original: Function) -> Function:
    return lambda self, encode: None


@planted(
    "turret.training.samplers.adaptive.two_stage:TwoStageSampler._log_weights",
    "training/test_samplers_adaptive.py",
)
def the_second_pass_draws_by_uncorrected_scores(original: Function) -> Function:
    return lambda self, query, pool: original(self, query, pool) + pool.log_count


@planted("turret.training.samplers.adaptive.hard_negatives:_best_of", "training/test_samplers_adaptive.py")
def hard_negatives_of_absolute_scores_are_the_greatest(original: Function) -> Function:
    return lambda query, vectors, count, absolute: original(query, vectors, count, False)


@planted(
    "turret.training.samplers.adaptive.positive_features:PositiveFeaturesSampler._log_mixture",
    "training/test_samplers_adaptive.py",
)
def a_feature_is_drawn_without_its_sum_over_the_items(original: Function) -> Function:
    return lambda self, query: (query.cpu().float() @ self.directions.T).double().log_softmax(dim=1)


@planted(
    "turret.training.samplers.adaptive.fourier_features:FourierFeaturesSampler.update",
    "training/test_samplers_adaptive.py",
)
def the_features_of_renewed_items_stay(original: Function) -> Function:
    return lambda self, encode: self.snapshot.update(encode)


@planted(
    "turret.training.samplers.adaptive.ngram:AdaptiveNgramSampler.observe", "training/test_samplers_ngram.py"
)
def n_grams_learn_from_uncorrected_scores(original: Function) -> Function:
    def observe(self: Any, draw: Any, positive: Any, drawn: Any) -> None:
        original(self, replace(draw, log_count=torch.zeros_like(draw.log_count)), positive, drawn)

    return observe


@planted(
    "turret.training.samplers.adaptive.ngram:AdaptiveNgramSampler._learn_shares",
    "training/test_samplers_ngram.py",
)
def shares_of_an_n_gram_may_vanish(original: Function) -> Function:
    return seeing(original, LASTING=0.0)


@planted(
    "turret.training.samplers.kernel.quadratic:QuadraticSampler._log_mass",
    "training/test_checks.py",
)
def a_draw_without_the_positive_keeps_its_mass(original: Function) -> Function:
    def log_mass(self: Any, query: Any, positives: Any, masses: Any) -> Any:
        return masses.log(), original(self, query, positives, masses)[1]

    return log_mass


@planted(
    "turret.training.samplers.kernel.quadratic:QuadraticSampler.__init__",
    "training/test_samplers_quadratic.py",
)
def the_quadratic_kernel_is_of_the_score_before_the_temperature(original: Function) -> Function:
    def initialise(self: Any, *settings: Any, **named: Any) -> None:
        original(self, *settings[:6], **{**named, "temperature": 1.0})

    return initialise


@planted("turret.training.samplers.kernel.sums:KernelSums._pick_blocks", "training/test_samplers_kernel.py")
def the_mass_of_the_excluded_row_stays_in_its_block(original: Function) -> Function:
    def pick_blocks(self: Any, query: Any, counts: Any, excluded: Any, random: Any) -> Any:
        return original(self, query, counts, torch.full_like(excluded, -1), random)

    return pick_blocks


@planted("turret.training.samplers.kernel.sums:TensorSums.draw", "training/test_samplers_kernel.py")
def tensors_draw_the_excluded_row(original: Function) -> Function:
    def draw(self: Any, query: Any, masses: Any, counts: Any, excluded: Any, seed: int) -> Any:
        return original(self, query, masses, counts, torch.full_like(excluded, -1), seed)

    return draw


@planted("turret.training.samplers.kernel.sums:KernelSums.__init__", "training/test_samplers_kernel.py")
def the_last_block_of_a_kernel_counts_as_full(original: Function) -> Function:
    def initialise(self: Any, *settings: Any, **named: Any) -> None:
        original(self, *settings, **named)
        self._sizes[-1] = float(self.block)

    return initialise
