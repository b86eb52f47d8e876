"""Rules for combining losses, samplers and scorings."""

from typing import Literal

from turret.tower.config import ScoringConfig
from turret.training.objectives.contract import LossSettings
from turret.training.samplers.core.settings import SamplerSettings

# These samplers fit any loss over a draw.
_ANY_DRAW = "'uniform', 'unigram' or 'quadratic'"
# _JUDGING names the losses that fit labelled pairs, _COMPARING some of those that fit given negatives.
_JUDGING = "'binary_cross_entropy' or 'cosine_embedding'"
_COMPARING = "'cosine_hinge', 'ranking' or 'sampled_softmax'"


def refusal(loss: LossSettings, sampler: SamplerSettings | None) -> str | None:
    """The reason why this loss can't use the draws of this sampler, with a remedy; None if it can."""
    name = f"objective.loss = {loss.kind!r}"
    if sampler is None:
        return (
            f"{name} needs a sampler; add [objective.sampler] with kind = {_ANY_DRAW}, "
            "or set loss = 'full_softmax'"
            if loss.draws
            else None
        )
    drawn = f"objective.sampler.kind = {sampler.kind!r}"
    because = " with exclude_positive = true" if getattr(sampler, "exclude_positive", False) else ""
    remedy = f"use 'sampled_softmax' with it, or kind = {_ANY_DRAW}"
    if not loss.draws:
        return (
            f"{name} scores the whole catalog, so {drawn} contradicts it; replace the whole section "
            f"(objective={{loss=\"{loss.kind}\"}}), or use 'sampled_softmax'"
        )
    if not sampler.alone:
        return f"{drawn} never draws most items; make it a part of kind = 'mixed', beside 'uniform'"
    if loss.needs_probabilities and not sampler.counts_positives:
        return f"{name} needs the expected count of the positive, which {drawn} can't give{because}; {remedy}"
    # A queue counts positives even in the step in which it is empty.
    if loss.needs_probabilities and not sampler.covers_catalog and not sampler.remembered_batches:
        return (
            f"{name} needs the expected count of the positive, and {drawn} never draws some items; use "
            "'sampled_softmax' with it, or make it a part of kind = 'mixed', beside 'uniform'"
        )
    if loss.needs_fixed_size and not sampler.fixed_size:
        return (
            f"{name} is a mean over a fixed number of candidates, and {drawn} draws more or fewer; {remedy}"
        )
    if loss.keeps_hits and not sampler.counts_positives:
        return f"{name} counts drawn positives, and {drawn} can't draw the positive{because}; {remedy}"
    return None


def candidates_refusal(
    loss: LossSettings, sampler: SamplerSettings | None, candidates: Literal["given", "labelled"]
) -> str | None:
    """The reason why this loss can't use the negatives of the data, with a remedy; None if it can."""
    name, taken = f"objective.loss = {loss.kind!r}", f"objective.candidates = {candidates!r}"
    if sampler is not None:
        return (
            f"{taken} takes the negatives of the data, so objective.sampler.kind = {sampler.kind!r} "
            "contradicts it; replace the whole section "
            f'(objective={{loss="{loss.kind}", candidates="{candidates}"}}), or set candidates = \'drawn\''
        )
    if not loss.draws:
        others = _COMPARING if candidates == "given" else _JUDGING
        return f"{name} scores the whole catalog, so {taken} contradicts it; use {others} with it"
    if candidates == "labelled" and loss.pair_loss() is None:
        return (
            f"{name} compares a positive with candidates, so a pair and its label have no loss, as {taken} "
            f"needs; use {_JUDGING} with it, or candidates = 'given'"
        )
    if candidates == "given" and (loss.needs_probabilities or loss.keeps_hits):
        return (
            f"{name} corrects scores by the probabilities of a draw, and with {taken} nothing is drawn; use "
            f"{_COMPARING} with it"
        )
    return None


def scoring_refusal(
    loss: LossSettings, sampler: SamplerSettings | None, scoring: ScoringConfig
) -> str | None:
    """The reason why this loss and sampler can't use such scores, with a remedy; None if they can."""
    name = f"objective.loss = {loss.kind!r}"
    if loss.needs_cosine and (scoring.kind != "cosine" or scoring.temperature != 1.0 or scoring.item_bias):
        return (
            f"{name} has its margin in cosines, so tower.scoring must be kind = 'cosine' with "
            f"temperature = 1.0 and no item_bias, not kind = {scoring.kind!r} with temperature = "
            f"{scoring.temperature}{' and item_bias = true' if scoring.item_bias else ''}"
        )
    if loss.needs_absolute and not scoring.absolute:
        return (
            f"{name} ignores the sign of a score, so items must be ranked by absolute scores; "
            "set tower.scoring.absolute = true, or loss = 'full_softmax'"
        )
    if scoring.absolute and sampler is not None and not sampler.symmetric:
        return (
            "tower.scoring.absolute = true gives h and -h the same scores, and objective.sampler.kind = "
            f"{sampler.kind!r} other probabilities; use kind = 'quadratic', 'uniform' or 'unigram', "
            "or set absolute = false"
        )
    return None
