"""Faults of training: batches, the loop, the optimiser, checkpoints, evaluation and baselines."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from tests.planted.fault import Function, planted, seeing


@planted("turret.training.batches.spans:cut_spans", "training/test_batches.py")
def the_first_event_of_a_history_is_a_target(original: Function) -> Function:
    def cut_spans(begins: Any, ends: Any, context: str, *sizes: int) -> Any:
        spans = original(begins, ends, context, *sizes)
        if context != "causal_window":
            return spans
        firsts = spans.firsts - (spans.firsts == begins[spans.users] + 1)
        return replace(spans, firsts=firsts, counts=spans.ends - firsts)

    return cut_spans


@planted("turret.training.batches.spans:cut_spans", "training/test_batches.py")
def a_segment_reads_the_one_before_it(original: Function) -> Function:
    def cut_spans(begins: Any, ends: Any, context: str, longest: int, history_length: int) -> Any:
        spans = original(begins, ends, context, longest, history_length)
        if context != "causal_segment":
            return spans
        return replace(spans, contexts=np.maximum(begins[spans.users], spans.firsts - history_length))

    return cut_spans


@planted("turret.training.batches.batches:TrainingBatches._histories", "training/test_batches.py")
def a_target_reads_itself(original: Function) -> Function:
    def histories(self: Any, *spans: Any) -> Any:
        packed = original(self, *spans)
        return replace(packed, ends=packed.ends + 1)

    return histories


@planted("turret.training.batches.batches:TrainingBatches.__init__", "training/test_batches.py")
def training_reads_the_validation_part(original: Function) -> Function:
    def initialise(self: Any, data: Any, *settings: Any, **named: Any) -> None:
        original(self, replace(data, splits=data.splits[:, [1, 1]]), *settings, **named)

    return initialise


@planted("turret.training.trainer:Trainer.step", "training/test_trainer.py")
def the_sampler_never_renews_its_vectors(original: Function) -> Function:
    def step(self: Any, batch: Any) -> Any:
        if self.objective.sampler is None:
            return original(self, batch)
        with patch.object(self.objective.sampler, "update"):
            return original(self, batch)

    return step


@planted("turret.training.trainer:Trainer.step", "training/test_trainer.py")
def an_infinite_loss_is_descended(original: Function) -> Function:
    return seeing(original, abs=lambda loss: 0.0)


@planted("turret.training.trainer:Trainer.step", "training/test_trainer.py")
def all_steps_draw_the_same_dropout(original: Function) -> Function:
    seed_torch = original.__globals__["seed_torch"]
    return seeing(original, seed_torch=lambda seed, purpose, step: seed_torch(seed, purpose, 0))


@planted("turret.training.trainer:Trainer.step", "training/test_trainer.py")
def all_steps_draw_the_same_candidates(original: Function) -> Function:
    stream = original.__globals__["stream"]
    return seeing(original, stream=lambda seed, purpose, step: stream(seed, purpose, 0))


@planted("turret.training.trainer:Trainer._begin_epoch", "training/test_trainer.py")
def every_epoch_has_the_same_order(original: Function) -> Function:
    stream = original.__globals__["stream"]
    return seeing(original, stream=lambda seed, purpose, epoch: stream(seed, purpose, 0))


@planted("turret.training.trainer:Trainer._validate", "training/test_trainer.py")
def the_last_evaluation_is_the_best(original: Function) -> Function:
    def validate(self: Any, users: Any) -> Any:
        self.progress.best = None
        return original(self, users)

    return validate


@planted("turret.training.checkpoint:all_parameters", "training/test_trainer.py")
def the_best_model_is_the_one_at_hand(original: Function) -> Function:
    def all_parameters(model: Any, objective: Any) -> Any:
        return {**original(model, objective), **model.state_dict()}

    return all_parameters


@planted("turret.training.optimiser:Optimiser.clip", "training/test_optimisers.py")
def gradients_are_clipped_one_parameter_after_the_other(original: Function) -> Function:
    def clip(self: Any, max_norm: float) -> None:
        for parameter in self.parameters:
            if parameter.grad is not None:
                with patch.object(self, "parameters", [parameter]):
                    original(self, max_norm)

    return clip


@planted("turret.training.evaluation.evaluation:measure", "training/test_evaluation.py")
def coverage_is_that_of_the_largest_k(original: Function) -> Function:
    def measure(ranked: Any, relevant: Any, ks: Any, *others: Any) -> Any:
        metrics, coverage, of_others = original(ranked, relevant, ks, *others)
        return metrics, dict.fromkeys(coverage, coverage[f"coverage@{max(ks)}"]), of_others

    return measure


@planted("turret.training.evaluation.seen:left_out_pairs", "training/test_evaluation.py")
def evaluation_masks_the_newest_fifty_of_the_seen_items_alone(original: Function) -> Function:
    bounds = original.__globals__["history_bounds"]

    def newest(data: Any, users: Any, until: Any) -> Any:
        starts, ends = bounds(data, users, until)
        return np.maximum(starts, ends - 50), ends

    return seeing(original, history_bounds=newest)


@planted("turret.training.baselines.interactions:Interactions.training", "training/test_baselines.py")
def baselines_learn_from_the_validation_part(original: Function) -> Function:
    find = original.__globals__["distinct_items"]
    return seeing(original, distinct_items=lambda data, users, until: find(data, users, "test"))


@planted("turret.training.auto.choice:_best", "training/test_auto.py")
def the_automatic_choice_picks_the_worst_trial(original: Function) -> Function:
    return seeing(original, max=min)


@planted("turret.training.auto.choice:_trial", "training/test_auto.py")
def trials_of_all_candidates_have_as_many_epochs(original: Function) -> Function:
    return seeing(original, round=lambda epochs: 2)


@planted("turret.data.prepared:PreparedData.only_targets", "training/test_kinds.py")
def signals_are_next_items(original: Function) -> Function:
    return lambda self, positions: positions


@planted("turret.training.batches.batches:packed_kinds", "training/test_kinds.py")
def an_event_has_the_kind_of_the_one_before(original: Function) -> Function:
    return lambda data, events: original(data, np.maximum(events - 1, 0))


@planted("turret.training.evaluation.seen:request_moments", "training/test_kinds.py")
def consumption_ends_by_the_end_of_the_log(original: Function) -> Function:
    return lambda data, users, ends: np.full(len(users), float(data.manifest.time.last))
