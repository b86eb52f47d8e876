"""Faults of losses and objectives: their sign, corrections, masks, weights and gradients."""

from dataclasses import replace
from typing import Any

import torch

from tests.planted.fault import Function, planted, seeing


@planted("turret.training.losses.terms:minus_log_count", "training/test_losses.py")
def the_log_q_correction_has_the_wrong_sign(original: Function) -> Function:
    return lambda drawn, draw: drawn + draw.log_count


@planted("turret.training.losses.terms:mean_of_valid", "training/test_losses.py")
def a_mean_counts_masked_candidates(original: Function) -> Function:
    return lambda terms, draw: terms.mean(dim=1)


@planted("turret.training.losses.terms:log_sum_exp", "training/test_losses.py")
def an_example_without_candidates_has_a_gradient_that_is_no_number(original: Function) -> Function:
    return lambda scores: torch.logsumexp(scores, dim=1)


@planted("turret.training.losses.binary:nce", "training/test_losses.py")
def nce_does_not_correct_the_positive(original: Function) -> Function:
    return lambda positive, drawn, draw: original(positive + draw.positive_log_count, drawn, draw)


@planted("turret.training.losses.binary:gbce", "training/test_losses.py")
def the_rate_of_gbce_counts_the_positive(original: Function) -> Function:
    return lambda *scores, t, item_count: original(*scores, t=t, item_count=item_count + 1)


@planted("turret.training.losses.pairwise:_behind", "training/test_losses.py")
def the_margin_of_a_ranking_has_the_wrong_sign(original: Function) -> Function:
    return lambda positive, drawn, draw, delta: original(positive, drawn, draw, -delta)


@planted("turret.training.losses.pairwise:cosine_embedding", "training/test_losses.py")
def the_margin_of_a_cosine_is_zero(original: Function) -> Function:
    return lambda positive, drawn, draw, *, margin: original(positive, drawn, draw, margin=0.0)


@planted("turret.training.losses.sampled:subset_softmax", "training/test_losses.py")
def the_subset_softmax_is_corrected(original: Function) -> Function:
    return lambda positive, drawn, draw: original(positive, drawn - draw.log_count, draw)


@planted("turret.training.losses.sampled:refined_logq", "training/test_losses.py")
def a_gradient_goes_through_the_weight_of_refined_log_q(original: Function) -> Function:
    def refined_logq(positive: Any, drawn: Any, draw: Any) -> Any:
        module = original.__globals__
        others = module["masked"](module["minus_log_count"](drawn, draw), draw)
        log_odds = module["log_sum_exp"](others) - positive
        log_odds = log_odds.masked_fill(log_odds == -torch.inf, 0.0)
        return log_odds.sigmoid() * log_odds

    return refined_logq


@planted("turret.training.losses.sampled:StandardImportanceConfig.keeps_hits", "training/test_objectives.py")
def standard_importance_sampling_masks_the_drawn_positive(original: Function) -> Function:
    return lambda self: False


@planted(
    "turret.training.losses.hierarchical:HierarchicalObjective.forward", "training/test_catalog_losses.py"
)
def clustered_losses_meet_the_weights_of_other_examples(original: Function) -> Function:
    mean = original.__globals__["weighted_mean"]
    return seeing(original, weighted_mean=lambda losses, weights: mean(losses, weights.flip(0)))


@planted("turret.training.losses.huffman:huffman_paths", "training/test_catalog_losses.py")
def the_tree_of_huffman_merges_the_most_frequent_first(original: Function) -> Function:
    return lambda counts: original(counts.max() - counts)


@planted("turret.training.losses.huffman:tree_softmax", "training/test_catalog_losses.py")
def beyond_the_root_a_path_goes_on(original: Function) -> Function:
    return lambda scores, signs: torch.nn.functional.softplus(-signs * scores).sum(dim=1)


@planted("turret.training.losses.catalog:spherical_softmax", "training/test_catalog_losses.py")
def a_hidden_item_has_epsilon_in_the_spherical_softmax(original: Function) -> Function:
    def spherical_softmax(scores: Any, positives: Any, *, epsilon: float) -> Any:
        return original(scores.masked_fill(scores == -torch.inf, 0.0), positives, epsilon=epsilon)

    return spherical_softmax


@planted("turret.training.losses.spherical_update:FactoredItems._move", "training/test_catalog_losses.py")
def the_gram_matrix_of_a_spherical_step_is_not_renewed(original: Function) -> Function:
    def move(self: Any, *change: Any) -> None:
        before = self._gram.clone()
        original(self, *change)
        self._gram = before

    return move


@planted("turret.training.losses.scalable:scalable_cross_entropy", "training/test_catalog_losses.py")
def examples_in_two_buckets_count_the_sum(original: Function) -> Function:
    def scalable_cross_entropy(positive: Any, bucketed: Any, draw: Any, examples: Any) -> Any:
        losses = original.__globals__["sampled_softmax"](positive[examples], bucketed, draw)
        return torch.zeros_like(positive).index_add(0, examples, losses)

    return scalable_cross_entropy


@planted("turret.training.losses.scalable:BucketedObjective._draw", "training/test_catalog_losses.py")
def buckets_keep_the_items_that_a_user_has_seen(original: Function) -> Function:
    return lambda self, examples, ids, lines: original(self, replace(examples, seen=None), ids, lines)


@planted("turret.training.objectives.sampled:SampledObjective._masked", "training/test_objectives.py")
def seen_items_stay_in_the_draw(original: Function) -> Function:
    return lambda self, draw, examples: original(self, draw, replace(examples, seen=None))


@planted("turret.training.objectives.sampled:SampledObjective._log_normaliser", "training/test_objectives.py")
def the_normaliser_of_a_context_is_that_of_the_next_one(original: Function) -> Function:
    return lambda self, examples, values: original(self, examples, values.roll(1))


@planted("turret.training.objectives.sampled:SampledObjective.forward", "training/test_objectives.py")
def the_normaliser_is_added_to_the_drawn_scores(original: Function) -> Function:
    score = original.__globals__["candidate_scores"]

    def forward(self: Any, examples: Any, random: Any) -> Any:
        if self.log_normaliser is None:
            return original(self, examples, random)
        twice = 2.0 * self._log_normaliser(examples, self.log_normaliser).unsqueeze(1)
        faulty = seeing(original, candidate_scores=lambda given, draw: score(given, draw) + twice)
        return faulty(self, examples, random)

    return forward


@planted("turret.training.estimator:Estimator.forward", "training/test_estimator.py")
def all_steps_of_an_estimator_draw_the_same_candidates(original: Function) -> Function:
    stream = original.__globals__["stream"]
    return seeing(original, stream=lambda seed, purpose, step: stream(seed, purpose, 0))


@planted("turret.training.estimator:Estimator.forward", "training/test_estimator.py")
def all_ranks_of_an_estimator_draw_the_same_candidates(original: Function) -> Function:
    return seeing(original, _rank=lambda: 0)


@planted("turret.training.objectives.sampled:SampledObjective._blocked", "training/test_blocked_softmax.py")
def the_blocked_softmax_does_not_correct_the_positive(original: Function) -> Function:
    def blocked(self: Any, examples: Any, positive: Any, draw: Any) -> Any:
        zeros = torch.zeros_like(draw.positive_log_count)
        return original(self, examples, positive, replace(draw, positive_log_count=zeros))

    return blocked


@planted("turret.training.objectives.sampled:SampledObjective._blocked", "training/test_several_positives.py")
def the_blocked_softmax_lacks_the_other_positives(original: Function) -> Function:
    def blocked(self: Any, examples: Any, positive: Any, draw: Any) -> Any:
        return original(self, replace(examples, others=None), positive, draw)

    return blocked


@planted("turret.training.objectives.sampled:_shared_vectors", "training/test_objectives.py")
def stored_vectors_stand_for_the_first_candidates(original: Function) -> Function:
    def shared_vectors(examples: Any, ids: Any, stored: Any) -> Any:
        vectors = original(examples, ids, stored)
        return vectors if stored is None else vectors.roll(len(stored), dims=0)

    return shared_vectors


@planted("turret.training.objectives.blocked:_gradients", "training/test_blocked_softmax.py")
def the_temperature_comes_after_the_correction_in_the_blocked_softmax(original: Function) -> Function:
    def gradients(examples: Any, candidates: Any, scoring: Any) -> Any:
        counts = candidates.log_count
        divided = None if counts is None else counts / scoring.temperature
        return original(examples, replace(candidates, log_count=divided), scoring)

    return gradients


@planted("turret.training.objectives.blocked:_gradients", "training/test_blocked_softmax.py")
def the_gradient_of_the_users_forgets_the_weights(original: Function) -> Function:
    def gradients(examples: Any, candidates: Any, scoring: Any) -> Any:
        found = original(examples, candidates, scoring)
        return found._replace(users=found.users / examples.weights.unsqueeze(1))

    return gradients


@planted("turret.training.objectives.blocked:_gradients", "training/test_blocked_softmax.py")
def the_gradient_of_the_users_lacks_the_temperature(original: Function) -> Function:
    def gradients(examples: Any, candidates: Any, scoring: Any) -> Any:
        found = original(examples, candidates, scoring)
        return found._replace(users=found.users * scoring.temperature)

    return gradients


@planted("turret.training.objectives.row_masses:tensor_masses_", "training/test_blocked_softmax.py")
def log_counts_are_rounded_to_bfloat16(original: Function) -> Function:
    def tensor_masses(scores: Any, log_count: Any, own: Any) -> Any:
        return original(scores, None if log_count is None else log_count.bfloat16().float(), own)

    return tensor_masses


@planted("turret.training.objectives.row_masses:tensor_masses_", "training/test_blocked_softmax.py")
def the_greatest_score_is_that_of_the_candidates_alone(original: Function) -> Function:
    return lambda scores, log_count, own: original(scores, log_count, torch.full_like(own, -torch.inf))


@planted("turret.training.objectives.catalog:CatalogObjective._grouped", "training/test_blocked_softmax.py")
def examples_of_one_user_vector_share_the_positive_of_the_last(original: Function) -> Function:
    def grouped(self: Any, examples: Any, items: Any) -> Any:
        if examples.groups is not None:
            order = torch.arange(len(examples.groups))
            last = torch.zeros_like(order).scatter_reduce(0, examples.groups, order, "amax")[examples.groups]
            vectors = examples.positive_vectors[last]
            examples = replace(examples, positives=examples.positives[last], positive_vectors=vectors)
        return original(self, examples, items)

    return grouped


@planted("turret.training.objectives.contract:weighted_mean", "training/test_objectives.py")
def weighted_losses_are_divided_by_the_number_of_examples(original: Function) -> Function:
    return lambda losses, weights: (losses * weights).mean()


@planted("turret.training.objectives.contract:total_weight", "training/test_objectives.py")
def a_batch_without_weight_divides_by_zero(original: Function) -> Function:
    return lambda weights: weights.sum()


@planted("turret.training.objectives.seen_items:SeenItems._of_users", "training/test_objectives.py")
def of_a_repeated_candidate_one_copy_is_masked_as_seen(original: Function) -> Function:
    def of_users(self: Any, ids: Any) -> Any:
        first = (ids.unsqueeze(0) == ids.unsqueeze(1)).int().argmax(dim=1)
        return original(self, ids) & (first == torch.arange(len(ids)))

    return of_users


@planted(
    "turret.training.objectives.several_positives:with_other_positives", "training/test_several_positives.py"
)
def other_positives_are_never_corrected(original: Function) -> Function:
    def with_other_positives(positive: Any, drawn: Any, draw: Any, examples: Any, corrected: bool) -> Any:
        return original(positive, drawn, draw, examples, False)

    return with_other_positives


@planted(
    "turret.training.objectives.several_positives:without_other_positives",
    "training/test_several_positives.py",
)
def the_last_positive_is_masked_where_there_is_no_other(original: Function) -> Function:
    def without_other_positives(draw: Any, examples: Any) -> Any:
        return original(draw, replace(examples, others=examples.others % len(examples.positives)))

    return without_other_positives


@planted(
    "turret.training.objectives.several_positives:one_for_each_positive", "training/test_several_positives.py"
)
def all_positives_of_a_user_vector_weigh_the_same(original: Function) -> Function:
    def one_for_each_positive(given: Any, targets: Any) -> Any:
        examples, owners = original(given, targets)
        return replace(examples, weights=given.weights[owners]), owners

    return one_for_each_positive


@planted("turret.training.objectives.pairs:PairsObjective.forward", "training/test_pairs.py")
def the_mean_over_pairs_is_over_the_positives(original: Function) -> Function:
    def forward(self: Any, examples: Any, random: Any) -> Any:
        zeros = torch.zeros_like(examples.negative_weights)
        return original(self, replace(examples, negative_weights=zeros), random)

    return forward
