"""Faults of losses and objectives: their sign, corrections, masks, weights and gradients."""

from dataclasses import replace
from typing import Any

import torch

from tests.planted.fault import Function, planted, seeing


@planted("turret.training.losses.loss:minus_log_count", "training/test_losses.py")
def the_log_q_correction_has_the_wrong_sign(original: Function) -> Function:
    return lambda drawn, draw: drawn + draw.log_count


@planted("turret.training.losses.loss:mean_of_valid", "training/test_losses.py")
def a_mean_counts_masked_candidates(original: Function) -> Function:
    return lambda terms, draw: terms.mean(dim=1)


@planted("turret.training.losses.pairwise:_behind", "training/test_losses.py")
def the_margin_of_a_ranking_has_the_wrong_sign(original: Function) -> Function:
    return lambda positive, drawn, draw, delta: original(positive, drawn, draw, -delta)


@planted("turret.training.objectives.sampled:SampledObjective._masked", "contracts/test_losses.py")
def standard_importance_sampling_masks_the_drawn_positive(original: Function) -> Function:
    def masked(self: Any, draw: Any, examples: Any) -> Any:
        return draw if self.settings.kind == "standard_importance" else original(self, draw, examples)

    return masked


@planted("turret.training.losses.hierarchical:tree_softmax", "training/test_catalog_losses.py")
def beyond_the_root_a_path_goes_on(original: Function) -> Function:
    return lambda scores, signs: torch.nn.functional.softplus(-signs * scores).sum(dim=1)


@planted("turret.training.objectives.sampled:SampledObjective._masked", "training/test_objectives.py")
def seen_items_stay_in_the_draw(original: Function) -> Function:
    return lambda self, draw, examples: original(self, draw, replace(examples, seen=None))


@planted("turret.training.objectives.sampled:SampledObjective.forward", "training/test_objectives.py")
def the_normaliser_is_added_to_the_drawn_scores(original: Function) -> Function:
    score = original.__globals__["candidate_scores"]

    def forward(self: Any, examples: Any, random: Any) -> Any:
        if self.log_normaliser is None:
            return original(self, examples, random)
        twice = 2.0 * self.log_normaliser
        faulty = seeing(original, candidate_scores=lambda given, draw: score(given, draw) + twice)
        return faulty(self, examples, random)

    return forward


@planted("turret.training.estimator:Estimator.forward", "training/test_estimator.py")
def all_steps_of_an_estimator_draw_the_same_candidates(original: Function) -> Function:
    stream = original.__globals__["stream"]
    return seeing(original, stream=lambda seed, purpose, step: stream(seed, purpose, 0))


@planted("turret.training.objectives.sampled:SampledObjective._blocked", "contracts/test_losses.py")
def the_blocked_softmax_does_not_correct_the_positive(original: Function) -> Function:
    def blocked(self: Any, examples: Any, positive: Any, draw: Any) -> Any:
        zeros = torch.zeros_like(draw.positive_log_count)
        return original(self, examples, positive, replace(draw, positive_log_count=zeros))

    return blocked


@planted("turret.training.objectives.blocked:_gradients", "training/test_blocked_softmax.py")
def the_temperature_comes_after_the_correction_in_the_blocked_softmax(original: Function) -> Function:
    def gradients(*given: Any) -> Any:
        *others, log_count, scoring = given
        divided = None if log_count is None else log_count / scoring.temperature
        return original(*others, divided, scoring)

    return gradients


@planted("turret.training.objectives.blocked:tensor_masses_", "training/test_blocked_softmax.py")
def log_counts_are_rounded_to_bfloat16(original: Function) -> Function:
    def tensor_masses(scores: Any, log_count: Any, own: Any) -> Any:
        return original(scores, None if log_count is None else log_count.bfloat16().float(), own)

    return tensor_masses


@planted("turret.training.losses.catalog:CatalogObjective._blocked", "training/test_blocked_softmax.py")
def examples_of_one_user_vector_share_the_positive_of_the_last(original: Function) -> Function:
    def blocked(self: Any, examples: Any, items: Any) -> Any:
        if examples.groups is not None:
            order = torch.arange(len(examples.groups))
            last = torch.zeros_like(order).scatter_reduce(0, examples.groups, order, "amax")[examples.groups]
            vectors = examples.positive_vectors[last]
            examples = replace(examples, positives=examples.positives[last], positive_vectors=vectors)
        return original(self, examples, items)

    return blocked


@planted("turret.training.objectives.contract:weighted_mean", "contracts/test_losses.py")
def weighted_losses_are_divided_by_the_number_of_examples(original: Function) -> Function:
    return lambda losses, weights: (losses * weights).mean()


@planted("turret.training.objectives.sampled:with_other_positives", "training/test_several_positives.py")
def other_positives_are_never_corrected(original: Function) -> Function:
    def with_other_positives(positive: Any, drawn: Any, draw: Any, examples: Any, corrected: bool) -> Any:
        return original(positive, drawn, draw, examples, False)

    return with_other_positives
