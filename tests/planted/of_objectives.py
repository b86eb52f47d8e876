"""Faults of losses and of samplers: signs, corrections, masks, weights, expected counts and renewal."""

import math
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch

from tests.planted.fault import planted, seeing


@planted("training.losses.loss:minus_log_count", "training/test_losses.py")
def the_log_q_correction_has_the_wrong_sign(original: Any, drawn: Any, draw: Any) -> Any:
    return drawn + draw.log_count


@planted("training.losses.loss:mean_of_valid", "training/test_losses.py")
def a_mean_counts_masked_candidates(original: Any, terms: Any, draw: Any) -> Any:
    return terms.mean(dim=1)


@planted("training.losses.pairwise:_behind", "training/test_losses.py")
def the_margin_of_a_ranking_has_the_wrong_sign(
    original: Any, positive: Any, drawn: Any, draw: Any, delta: Any
) -> Any:
    return original(positive, drawn, draw, -delta)


@planted("training.objectives.sampled:SampledObjective._draw", "contracts/test_losses.py")
def standard_importance_sampling_masks_the_drawn_positive(
    original: Any, self: Any, examples: Any, random: Any
) -> Any:
    draw = original(self, examples, random)
    misses = draw.ids != examples.positives.unsqueeze(1)
    is_faulty = self.settings.kind == "standard_importance"
    return replace(draw, valid=draw.valid & misses) if is_faulty else draw


@planted("training.losses.hierarchical:tree_softmax", "training/test_catalog_losses.py")
def beyond_the_root_a_path_goes_on(original: Any, scores: Any, signs: Any) -> Any:
    return torch.nn.functional.softplus(-signs * scores).sum(dim=1)


@planted("training.objectives.sampled:SampledObjective._draw", "training/test_objectives.py")
def seen_items_stay_in_the_draw(original: Any, self: Any, examples: Any, random: Any) -> Any:
    return original(self, replace(examples, seen=None), random)


@planted("training.objectives.sampled:SampledObjective.forward", "training/test_objectives.py")
def the_normaliser_is_added_to_the_drawn_scores(original: Any, self: Any, examples: Any, random: Any) -> Any:
    score = original.__globals__["candidate_scores"]
    if self.log_normaliser is None:
        return original(self, examples, random)
    twice = 2.0 * self.log_normaliser
    faulty = seeing(original, candidate_scores=lambda given, draw: score(given, draw) + twice)
    return faulty(self, examples, random)


@planted("training.objectives.sampled:SampledObjective._blocked", "contracts/test_losses.py")
def the_blocked_softmax_does_not_correct_the_positive(
    original: Any, self: Any, examples: Any, positive: Any, draw: Any
) -> Any:
    zeros = torch.zeros_like(draw.positive_log_count)
    return original(self, examples, positive, replace(draw, positive_log_count=zeros))


@planted("training.objectives.blocked:_gradients", "training/test_objectives.py")
def the_temperature_comes_after_the_correction_in_the_blocked_softmax(original: Any, *given: Any) -> Any:
    *others, log_count, scoring = given
    return original(*others, None if log_count is None else log_count / scoring.temperature, scoring)


@planted("training.objectives.blocked:tensor_masses_", "training/test_objectives.py")
def log_counts_are_rounded_to_bfloat16(original: Any, scores: Any, log_count: Any, own: Any) -> Any:
    return original(scores, None if log_count is None else log_count.bfloat16().float(), own)


@planted("training.losses.catalog:CatalogObjective._blocked", "training/test_objectives.py")
def examples_of_one_user_vector_share_the_positive_of_the_last(
    original: Any, self: Any, examples: Any, items: Any
) -> Any:
    if examples.groups is not None:
        order = torch.arange(len(examples.groups))
        last = torch.zeros_like(order).scatter_reduce(0, examples.groups, order, "amax")[examples.groups]
        vectors = examples.positive_vectors[last]
        examples = replace(examples, positives=examples.positives[last], positive_vectors=vectors)
    return original(self, examples, items)


@planted("training.objectives.contract:weighted_mean", "contracts/test_losses.py")
def weighted_losses_are_divided_by_the_number_of_examples(original: Any, losses: Any, weights: Any) -> Any:
    return (losses * weights).mean()


@planted("training.objectives.sampled:with_other_positives", "training/test_pairs.py")
def other_positives_are_never_corrected(
    original: Any, positive: Any, drawn: Any, draw: Any, examples: Any, corrected: Any
) -> Any:
    return original(positive, drawn, draw, examples, False)


@planted("training.samplers.core.contract:drawn_from", "contracts/test_samplers.py")
def the_log_count_lacks_the_number_of_candidates(original: Any, ids: Any, log_q: Any, *positives: Any) -> Any:
    return replace(original(ids, log_q, *positives), log_count=log_q)


@planted("training.samplers.core.snapshot:SnapshotSampler.refresh", "training/test_samplers_kernel.py")
def a_snapshot_is_the_tensor_of_the_model_itself(original: Any, self: Any, item_vectors: Any) -> Any:
    original(self, item_vectors)
    self._vectors = item_vectors.detach()


@planted("training.samplers.fixed.popularity:ExactHeadSampler.__init__", "training/test_samplers_counts.py")
def the_counts_of_the_tail_are_shares_of_the_whole(
    original: Any, self: Any, weights: Any, *sizes: Any
) -> Any:
    original(self, weights, *sizes)
    if len(self.others):
        self.log_counts[self.others] += math.log(weights[self.others].sum() / weights.sum())


@planted("training.batches.batches:PreparedStatistics.item_counts", "training/test_batches.py")
def weights_by_popularity_count_the_test_part(original: Any, self: Any) -> Any:
    return sum(self.data.item_counts(part) for part in ("train", "validation", "test"))


@planted(
    "training.samplers.from_batch.frequency:StreamingFrequency.observe",
    "training/test_samplers_from_batch.py",
)
def the_clock_of_a_stream_counts_batches(original: Any, self: Any, positives: Any) -> Any:
    before = self.now
    original(self, positives)
    self.now = before + 1


@planted(
    "training.samplers.from_batch.in_batch:CrossBatchSampler._join", "training/test_samplers_from_batch.py"
)
def the_queue_never_drops_a_batch(original: Any, self: Any, *given: Any) -> Any:
    with patch.object(self, "batches", 1 << 30):
        original(self, *given)


@planted("training.samplers.from_batch.in_batch:InBatchSampler.log_expected", "contracts/test_samplers.py")
def candidates_of_the_batch_are_expected_once(
    original: Any, self: Any, query: Any, positives: Any, ids: Any
) -> Any:
    return self.frequency.log_share(ids)


@planted("training.samplers.registry:MixedSampler.draw", "contracts/test_samplers.py")
def each_part_of_a_union_counts_for_itself(original: Any, *given: Any, **named: Any) -> Any:
    def kept(one: Any, **changes: Any) -> Any:
        return one if "log_count" in changes else replace(one, **changes)

    return seeing(original, replace=kept)(*given, **named)


@planted("training.samplers.adaptive.dense:TwoPassSampler._log_weights", "training/test_samplers_adaptive.py")
def the_second_pass_draws_by_uncorrected_scores(
    original: Any, self: Any, query: Any, ids: Any, vectors: Any
) -> Any:
    return original(self, query, ids, vectors) + self.log_expected[ids]


@planted("training.samplers.adaptive.features:FourierFeaturesSampler.follow", "contracts/test_samplers.py")
def the_features_of_renewed_items_stay(original: Any, self: Any, rows: Any) -> Any:
    if rows.stop - rows.start == self.item_count:
        original(self, rows)


@planted(
    "training.samplers.adaptive.ngram:AdaptiveNgramSampler._learn_shares", "training/test_samplers_counts.py"
)
def nothing_lasts_of_the_first_shares(original: Any, *given: Any) -> Any:
    return seeing(original, LASTING=0.0)(*given)


@planted("training.samplers.adaptive.ngram:AdaptiveNgramSampler.observe", "training/test_samplers_counts.py")
def n_grams_learn_from_uncorrected_scores(
    original: Any, self: Any, draw: Any, positive: Any, drawn: Any
) -> Any:
    original(self, replace(draw, log_count=torch.zeros_like(draw.log_count)), positive, drawn)


@planted("training.samplers.kernel.quadratic:QuadraticSampler.__init__", "training/test_samplers_kernel.py")
def the_quadratic_kernel_is_of_the_score_before_the_temperature(
    original: Any, self: Any, settings: Any, context: Any
) -> Any:
    original(self, settings, context)
    self.scale = settings.alpha


@planted("training.samplers.kernel.quadratic:KernelSums._pick_blocks", "training/test_samplers_kernel.py")
def the_mass_of_the_excluded_row_stays_in_its_block(
    original: Any, self: Any, query: Any, counts: Any, excluded: Any, random: Any
) -> Any:
    return original(self, query, counts, torch.full_like(excluded, -1), random)


@planted("training.samplers.registry:union", "training/test_samplers_from_batch.py")
def a_union_masks_the_places_of_the_batch_before_its_order(original: Any, draws: Any, *given: Any) -> Any:
    union, first, columns = original(draws, *given), 0, []
    for draw in draws:
        columns += [] if draw.held is None else [draw.held[1] + first]
        first += draw.ids.shape[-1]
    return replace(union, held=(union.held[0], torch.cat(columns))) if columns else union


@planted("training.losses.sampled:top_k_off_policy", "training/test_losses.py")
def an_importance_weight_has_no_clip(original: Any, *given: Any, **named: Any) -> Any:
    return original(*given, **{**named, "clip": math.inf})


@planted("training.losses.sampled:top_k_off_policy", "training/test_losses.py")
def the_weight_of_the_top_k_has_a_gradient(original: Any, *given: Any, **named: Any) -> Any:
    class Attached:
        """Losses that `detach` leaves as they are."""

        def __init__(self, losses: Any) -> None:
            self.losses, self.dtype = losses, losses.dtype

        def detach(self) -> Any:
            return self.losses

        def __rmul__(self, weights: Any) -> Any:
            return weights * self.losses

    softmax = original.__globals__["sampled_softmax"]
    faulty = seeing(original, sampled_softmax=lambda *scores: Attached(softmax(*scores)))
    return faulty(*given, **named)


@planted("training.used_items:place_weights", "training/test_batches.py")
def the_weight_of_a_place_has_no_clip(original: Any, data: Any, clip: float) -> Any:
    return original(data, math.inf)
