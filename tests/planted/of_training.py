"""Faults of training: batches, the loop, the optimiser, checkpoints, evaluation and baselines."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from tests.planted.fault import planted, seeing


def _first(original: Any, name: str) -> Any:
    """A stream of random numbers that begins anew in each step or epoch."""
    stream = original.__globals__[name]
    return lambda seed, purpose, place, rank=0: stream(seed, purpose, 0, rank)


@planted("training.batches.spans:cut_spans", "training/test_batches.py")
def the_first_event_of_a_history_is_a_target(
    original: Any, begins: Any, ends: Any, context: Any, *sizes: Any
) -> Any:
    spans = original(begins, ends, context, *sizes)
    if context != "causal_window":
        return spans
    firsts = spans.firsts - (spans.firsts == begins[spans.users] + 1)
    return replace(spans, firsts=firsts, counts=spans.ends - firsts)


@planted("training.batches.spans:cut_spans", "training/test_batches.py")
def a_segment_reads_the_one_before_it(
    original: Any, begins: Any, ends: Any, context: Any, longest: Any, history_length: Any
) -> Any:
    spans = original(begins, ends, context, longest, history_length)
    if context != "causal_segment":
        return spans
    return replace(spans, contexts=np.maximum(begins[spans.users], spans.firsts - history_length))


@planted("training.batches.batches:TrainingBatches._histories", "training/test_batches.py")
def a_target_reads_itself(original: Any, *given: Any) -> Any:
    packed = original(*given)
    return replace(packed, ends=packed.ends + 1)


@planted("training.batches.batches:TrainingBatches.__init__", "training/test_batches.py")
def training_reads_the_validation_part(
    original: Any, self: Any, data: Any, *settings: Any, **named: Any
) -> Any:
    original(self, replace(data, splits=data.splits[:, [1, 1]]), *settings, **named)


@planted("training.loop.trainer:Trainer.step", "training/test_trainer.py")
def the_sampler_never_renews_its_vectors(original: Any, self: Any, batch: Any) -> Any:
    if self.objective.sampler is None:
        return original(self, batch)
    with patch.object(self.objective.sampler, "update"):
        return original(self, batch)


@planted("training.loop.trainer:Trainer.step", "training/test_trainer.py")
def an_infinite_loss_is_descended(original: Any, *given: Any) -> Any:
    return seeing(original, abs=lambda loss: 0.0)(*given)


@planted("training.loop.trainer:Trainer.step", "training/test_trainer.py")
def all_steps_draw_the_same_dropout(original: Any, *given: Any) -> Any:
    return seeing(original, seed_torch=_first(original, "seed_torch"))(*given)


@planted("training.loop.trainer:Trainer.step", "training/test_trainer.py")
def all_steps_draw_the_same_candidates(original: Any, *given: Any) -> Any:
    return seeing(original, stream=_first(original, "stream"))(*given)


@planted("training.loop.trainer:Trainer._begin_epoch", "training/test_trainer.py")
def every_epoch_has_the_same_order(original: Any, *given: Any) -> Any:
    return seeing(original, stream=_first(original, "stream"))(*given)


@planted("training.estimator:Estimator.forward", "training/test_estimator.py")
def all_steps_of_an_estimator_draw_the_same_candidates(original: Any, *given: Any, **named: Any) -> Any:
    return seeing(original, stream=_first(original, "stream"))(*given, **named)


@planted("training.loop.trainer:Trainer._validate", "training/test_trainer.py")
def the_last_evaluation_is_the_best(original: Any, self: Any, users: Any) -> Any:
    self.progress.best = None
    return original(self, users)


@planted("training.checkpoint:all_parameters", "training/test_trainer.py")
def the_best_model_is_the_one_at_hand(original: Any, model: Any, objective: Any) -> Any:
    return {**original(model, objective), **model.state_dict()}


@planted("training.loop.optimiser:Optimiser.clip", "training/test_trainer.py")
def gradients_are_clipped_one_parameter_after_the_other(original: Any, self: Any, max_norm: Any) -> Any:
    for parameter in self.parameters:
        if parameter.grad is not None:
            with patch.object(self, "parameters", [parameter]):
                original(self, max_norm)


@planted("training.warm_start:restandardise", "training/test_warm_start.py")
def a_new_deviation_scales_all_vectors(original: Any, *given: Any) -> Any:
    seeing(original, VectorLayer=int)(*given)


@planted("training.evaluation.evaluation:measure", "training/test_evaluation.py")
def coverage_is_that_of_the_largest_k(
    original: Any, ranked: Any, relevant: Any, ks: Any, *others: Any
) -> Any:
    metrics, coverage, of_others = original(ranked, relevant, ks, *others)
    return metrics, dict.fromkeys(coverage, coverage[f"coverage@{max(ks)}"]), of_others


@planted("training.evaluation.metrics:metrics_at", "training/test_evaluation.py")
def average_precision_is_not_normalised(original: Any, hits: Any, relevant: Any, ks: Any) -> Any:
    found = original(hits, relevant, ks)
    for name in found:
        if name.startswith("map"):
            found[name] = found[name] * np.minimum(relevant, int(name.partition("@")[2]))
    return found


@planted("training.evaluation.ranking:_labelled_pairs", "training/test_evaluation.py")
def labelled_items_of_one_user_are_candidates_of_all(original: Any, data: Any, users: Any, part: Any) -> Any:
    rows = np.unique(original(data, users, part)[1])
    return np.repeat(np.arange(len(users)), len(rows)), np.tile(rows, len(users))


@planted("training.evaluation.evaluation:_description", "training/test_evaluation.py")
def targets_that_their_user_has_used_are_cold(
    original: Any, data: Any, part: Any, relevant: Any, config: Any
) -> Any:
    cold = int((data.item_counts("train")[relevant.rows] == 0).sum())
    return {**original(data, part, relevant, config), "relevant_cold": cold}


@planted("training.evaluation.seen:left_out_pairs", "training/test_evaluation.py")
def evaluation_masks_the_newest_fifty_of_the_seen_items_alone(original: Any, *given: Any) -> Any:
    def newest(data: Any, users: Any, until: Any) -> Any:
        starts, ends = original.__globals__["history_bounds"](data, users, until)
        return np.maximum(starts, ends - 50), ends

    return seeing(original, history_bounds=newest)(*given)


@planted("training.evaluation.repeats:uses_of", "training/test_evaluation.py")
def the_evaluation_of_repeats_reads_no_times(original: Any, *given: Any) -> Any:
    return original(*given)._replace(times=None, request_times=None)


@planted("training.evaluation.repeats:fit_repeats", "training/test_evaluation.py")
def a_repeat_term_is_measured_on_the_users_of_its_fit(original: Any, *given: Any) -> Any:
    fit = original(*given)
    return fit and fit._replace(of_first=fit.term, of_second=fit.term)


@planted("training.evaluation.repeats:_minimum", "training/test_evaluation.py")
def a_repeat_term_takes_the_towers_to_be_sure(original: Any, choices: Any, matrix: Any, *given: Any) -> Any:
    number, start = given
    return original(choices, matrix, 1, start) if number <= 1 else (start, np.inf)


@planted("training.evaluation.repeats:_choices", "training/test_evaluation.py")
def each_target_of_a_user_counts_in_full(original: Any, *given: Any) -> Any:
    return [{**block, "chosen": np.sign(block["chosen"])} for block in original(*given)]


@planted("training.evaluation.repeats:_choices", "training/test_evaluation.py")
def a_repeat_term_competes_with_items_that_are_left_out(original: Any, *given: Any) -> Any:
    return seeing(original, mask=lambda scores, pairs: None)(*given)


@planted("training.evaluation.repeats:_choices", "training/test_evaluation.py")
def a_repeat_term_reads_the_popularity_in_the_validation_part(
    original: Any, scores_of: Any, data: Any, *given: Any
) -> Any:
    read, counts = original.__globals__["used_items"], data.item_counts("validation")
    return seeing(
        original, used_items=lambda events, popularity, kinds: read(events, popularity + counts, kinds)
    )(scores_of, data, *given)


@planted("training.baselines.interactions:Interactions.training", "training/test_baselines.py")
def baselines_learn_from_the_validation_part(original: Any, *given: Any) -> Any:
    find = original.__globals__["distinct_items"]
    return seeing(
        original,
        distinct_items=lambda data, users, ends, begins: find(
            data, users, data.history_ends("validation")[users], begins
        ),
    )(*given)


@planted("training.baselines.registry:terms", "training/test_baselines.py")
def terms_keep_their_case(original: Any, text: Any) -> Any:
    return text.split()


@planted("training.auto.candidates:tastes", "training/test_auto.py")
def tastes_read_the_test_part(original: Any, data: Any) -> Any:
    return original(replace(data, splits=np.column_stack([data.offsets[1:], data.offsets[1:]])))


@planted("data.preparing.prepare_warnings:repeats_of", "data/test_preparing.py")
def the_test_part_says_how_often_users_come_back(original: Any, events: Any, splits: Any, *given: Any) -> Any:
    all_events = np.searchsorted(events.users, np.arange(len(splits)), side="right")
    of_all = original(events, np.column_stack([all_events, all_events]), *given)
    return *of_all[:4], *original(events, splits, *given)[4:]


@planted("training.auto.picking:pick", "training/test_auto.py")
def the_automatic_choice_picks_the_worst_trial(original: Any, *given: Any) -> Any:
    return seeing(original, max=min)(*given)


@planted("training.auto.picking:pick", "training/test_auto.py")
def the_automatic_choice_looks_at_whole_answers_alone(
    original: Any, tried: Any, rules: Any, metric: Any
) -> Any:
    return original(tried, {name: {metric: own[metric]} for name, own in rules.items()}, metric)


@planted("training.auto.trials:_epochs", "training/test_auto.py")
def trials_of_all_candidates_have_as_many_epochs(original: Any, *given: Any) -> Any:
    return seeing(original, round=lambda epochs: 2)(*given)


@planted("training.auto.trials:_going_on", "training/test_auto.py")
def the_worse_half_of_the_trials_goes_on(original: Any, begun: Any, count: Any, metric: Any) -> Any:
    return {*sorted(begun, key=lambda name: begun[name].trial["values"][metric])[:count]}


@planted("data.prepared:PreparedData.only_targets", "training/test_kinds.py")
def signals_are_next_items(original: Any, self: Any, positions: Any) -> Any:
    return positions


@planted("data.prepared:PreparedData.history_ends", "training/test_kinds.py")
def signals_before_the_first_target_of_a_part_are_not_read(original: Any, self: Any, until: Any) -> Any:
    return original(replace(self, kinds=None), until)


@planted("training.batches.spans:Spans.of_targets", "training/test_kinds.py")
def one_signal_is_read_before_the_first_target(original: Any, *given: Any) -> Any:
    spans = original(*given)
    return replace(spans, contexts=np.maximum(spans.contexts, spans.firsts - 1))


@planted("training.batches.batches:packed_kinds", "training/test_kinds.py")
def an_event_has_the_kind_of_the_one_before(original: Any, data: Any, events: Any) -> Any:
    return original(data, np.maximum(events - 1, 0))


@planted("training.evaluation.seen:request_moments", "training/test_kinds.py")
def consumption_ends_by_the_end_of_the_log(original: Any, data: Any, users: Any, ends: Any) -> Any:
    return np.full(len(users), float(data.manifest.time.last))


@planted("training.evaluation.metrics:mean_interval", "training/test_evaluation.py")
def an_interval_reads_the_values_of_the_users_alone(
    original: Any, values: Any, ends: Any = (0.0, 1.0)
) -> Any:
    half_width = 1.96 * values.std(ddof=1) / len(values) ** 0.5
    return values.mean() - half_width, values.mean() + half_width


@planted("training.used_items:first_uses", "training/test_kinds.py")
def every_use_is_a_target_of_the_towers(original: Any, data: Any) -> Any:
    return np.ones_like(original(data))


@planted("training.used_items:firsts_of_each", "end_to_end/test_as_measured.py")
def an_evaluated_set_has_an_item_for_each_use(original: Any, data: Any, events: Any, *given: Any) -> Any:
    return np.arange(len(events))


@planted("training.evaluation.repeats:usual_gaps", "training/test_evaluation.py")
def the_usual_gap_is_known_from_one_on(original: Any, data: Any) -> Any:
    with patch.dict(original.__globals__, LEAST_GAPS=1):
        return original(data)


@planted("training.evaluation.evaluation:in_slot", "training/test_evaluation.py")
def new_targets_are_ranked_with_used_ones(original: Any, data: Any, relevant: Any, *given: Any) -> Any:
    return relevant


@planted("training.batches.batches:_with_others", "training/test_batches.py")
def a_set_of_a_single_item_predicts_it(original: Any, spans: Any, *given: Any) -> Any:
    return spans


@planted("training.batches.baskets:_items_of_baskets", "training/test_baskets.py")
def a_basket_is_of_the_part_of_its_first_event(original: Any, data: Any) -> Any:
    positions, baskets, parts = original(data)
    owners = np.searchsorted(data.offsets, positions, side="right") - 1
    np.minimum.at(parts, baskets, (positions[:, None] >= data.splits[owners]).sum(axis=1))
    return positions, baskets, parts


@planted("training.batches.baskets:_items_of_baskets", "training/test_baskets.py")
def a_basket_holds_what_was_only_viewed(original: Any, data: Any) -> Any:
    return original(replace(data, kinds=None))


@planted("training.batches.baskets:_put_last", "training/test_baskets.py")
def the_same_item_of_a_basket_is_always_held_out(original: Any, *others: Any) -> Any:
    return None


@planted("training.run:with_validation", "training/test_baskets.py")
def a_refit_leaves_the_baskets_of_the_validation_part_out(original: Any, data: Any) -> Any:
    return replace(original(data), train_ends=data.train_ends)


@planted("data.prepared:PreparedData.bounds", "training/test_baskets.py")
def training_reads_the_baskets_that_are_held_out(original: Any, data: Any, part: Any) -> Any:
    return original(replace(data, train_ends=None), part)


@planted("training.evaluation.complements:_best", "end_to_end/test_baskets.py")
def an_item_goes_with_itself(original: Any, scores: Any, rows: Any, k: Any) -> Any:
    return original(scores, (rows + 1) % scores.shape[1], k)


@planted("training.evaluation.ranking:best_scores", "end_to_end/test_interests.py")
def an_evaluation_ranks_by_the_first_interest(original: Any, scores: Any) -> Any:
    return scores[0]
