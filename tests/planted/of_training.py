"""Faults of training: batches, the loop, the optimiser, checkpoints, evaluation and baselines."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from tests.planted.fault import Function, planted, seeing


@planted("turret.training.batches.spans:cut_spans", "training/test_batches.py")
def the_first_event_of_a_history_is_a_target(original: Function) -> Function:
    def cut_spans(begins: Any, ends: Any, longest: int, history_length: int) -> Any:
        spans = original(begins, ends, longest, history_length)
        return replace(spans, firsts=spans.firsts - (spans.firsts == begins[spans.users] + 1))

    return cut_spans


@planted("turret.training.batches.spans:cut_spans", "training/test_batches.py")
def the_last_event_of_a_user_is_no_target(original: Function) -> Function:
    return lambda begins, ends, *lengths: original(begins, ends - 1, *lengths)


@planted("turret.training.batches.spans:cut_segments", "training/test_batches.py")
def a_segment_reads_the_one_before_it(original: Function) -> Function:
    def cut_segments(begins: Any, ends: Any, history_length: int) -> Any:
        spans = original(begins, ends, history_length)
        return replace(spans, contexts=np.maximum(begins[spans.users], spans.firsts - history_length))

    return cut_segments


@planted("turret.training.batches.spans:cut_sets", "training/test_batches.py")
def a_set_reads_the_oldest_events_of_the_user(original: Function) -> Function:
    def cut_sets(begins: Any, *others: Any) -> Any:
        spans = original(begins, *others)
        return replace(spans, contexts=begins[spans.users])

    return cut_sets


@planted("turret.training.batches.batches:TrainingBatches._histories", "training/test_batches.py")
def a_target_reads_itself(original: Function) -> Function:
    def histories(self: Any, *spans: Any) -> Any:
        packed = original(self, *spans)
        return replace(packed, ends=packed.ends + 1)

    return histories


@planted("turret.training.batches.batches:TrainingBatches._histories", "training/test_batches.py")
def a_window_holds_one_event_too_many(original: Function) -> Function:
    def histories(self: Any, *spans: Any) -> Any:
        with patch.object(self, "history_length", self.history_length + 1):
            return original(self, *spans)

    return histories


@planted("turret.training.batches.batches:TrainingBatches._histories", "training/test_batches.py")
def all_examples_are_as_old_as_the_newest(original: Function) -> Function:
    def histories(self: Any, *spans: Any) -> Any:
        packed = original(self, *spans)
        return replace(packed, ages=torch.zeros_like(packed.ages))

    return histories


@planted("turret.training.batches.batches:TrainingBatches.__init__", "training/test_batches.py")
def training_reads_the_validation_part(original: Function) -> Function:
    def initialise(self: Any, data: Any, *settings: Any, **named: Any) -> None:
        original(self, replace(data, splits=data.splits[:, [1, 1]]), *settings, **named)

    return initialise


@planted("turret.training.batches.batches:TrainingBatches.epoch", "training/test_batches.py")
def a_resumed_epoch_begins_again(original: Function) -> Function:
    return lambda self, order, first=0, share=(0, 1): original(self, order, 0, share)


@planted("turret.training.batches.negatives:padded_negatives", "training/test_pairs.py")
def a_negative_weighs_as_much_as_any_other(original: Function) -> Function:
    def padded_negatives(negatives: Any, targets: Any) -> Any:
        rows, _ = original(negatives, targets)
        return rows, (rows >= 0).float()

    return padded_negatives


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


@planted("turret.training.trainer:Trainer._epoch", "training/test_trainer.py")
def every_epoch_has_the_same_order(original: Function) -> Function:
    stream = original.__globals__["stream"]
    return seeing(original, stream=lambda seed, purpose, epoch: stream(seed, purpose, 0))


@planted("turret.training.trainer:Trainer._end_epoch", "training/test_trainer.py")
def there_is_one_more_evaluation_than_patience_allows(original: Function) -> Function:
    def end_epoch(self: Any, *others: Any) -> None:
        patience = {"patience": self.settings.patience + 1}
        with patch.object(self, "settings", self.settings.model_copy(update=patience)):
            original(self, *others)

    return end_epoch


@planted("turret.training.trainer:Trainer._validate", "training/test_trainer.py")
def the_last_evaluation_is_the_best(original: Function) -> Function:
    def validate(self: Any, users: Any) -> Any:
        self.progress.best = None
        return original(self, users)

    return validate


@planted("turret.training.trainer:Trainer.resume", "training/test_trainer.py")
def a_resumed_run_keeps_the_first_state_of_its_sampler(original: Function) -> Function:
    def resume(self: Any) -> Any:
        if self.objective.sampler is None:
            return original(self)
        with patch.object(self.objective.sampler, "restore"):
            return original(self)

    return resume


@planted("turret.training.checkpoint:all_parameters", "training/test_trainer.py")
def the_best_model_is_the_one_at_hand(original: Function) -> Function:
    def all_parameters(model: Any, objective: Any) -> Any:
        return {**original(model, objective), **model.state_dict()}

    return all_parameters


@planted("turret.training.optimisers.optimiser:learning_rate_factor", "training/test_optimisers.py")
def the_cosine_counts_the_warm_up(original: Function) -> Function:
    def learning_rate_factor(step: int, steps: int, warmup: float, decay: float) -> Any:
        return original(step, steps, warmup if step < warmup * steps else 0.0, decay)

    return learning_rate_factor


@planted("turret.training.optimisers.optimiser:Optimiser.clip", "training/test_optimisers.py")
def gradients_are_clipped_one_parameter_after_the_other(original: Function) -> Function:
    def clip(self: Any, max_norm: float) -> None:
        for parameter in self.parameters:
            if parameter.grad is not None:
                with patch.object(self, "parameters", [parameter]):
                    original(self, max_norm)

    return clip


@planted("turret.training.optimisers.row_adam:RowAdam._step", "training/test_optimisers.py")
def row_wise_adam_does_not_correct_its_first_moment(original: Function) -> Function:
    def step(self: Any, group: Any, steps: int) -> Any:
        made = original(self, group, steps)
        return made._replace(size=np.float32(made.size * (1.0 - group["betas"][0] ** steps)))

    return step


@planted("turret.training.records.history:_is_before", "training/test_records.py")
def a_resumed_training_keeps_the_history_of_all_steps(original: Function) -> Function:
    return lambda line, step, epoch: original(line, 1 << 30, epoch)


@planted("turret.training.evaluation.auc:_pairs", "training/test_evaluation.py")
def the_auc_of_the_test_is_that_of_the_validation_part(original: Function) -> Function:
    return lambda data, part, users: original(data, "validation", users)


@planted("turret.training.evaluation.evaluation:measure", "training/test_evaluation.py")
def coverage_is_that_of_the_largest_k(original: Function) -> Function:
    def measure(ranked: Any, relevant: Any, ks: Any, *others: Any) -> Any:
        metrics, coverage = original(ranked, relevant, ks, *others)
        return metrics, dict.fromkeys(coverage, coverage[f"coverage@{max(ks)}"])

    return measure


@planted("turret.training.evaluation.evaluation:validated_items", "training/test_evaluation.py")
def users_without_a_negative_are_validated_by_auc(original: Function) -> Function:
    return lambda data, metric: original(data, "ndcg@10")


@planted("turret.training.evaluation.ranking:seen_pairs", "training/test_evaluation.py")
def evaluation_masks_the_newest_fifty_of_the_seen_items_alone(original: Function) -> Function:
    bounds = original.__globals__["history_bounds"]

    def newest(data: Any, users: Any, until: Any) -> Any:
        starts, ends = bounds(data, users, until)
        return np.maximum(starts, ends - 50), ends

    return seeing(original, history_bounds=newest)


@planted("turret.training.evaluation.per_user:mean_per_user", "training/test_comparison.py")
def the_comparison_reads_the_first_seed_alone(original: Function) -> Function:
    return lambda paths, ranker: original(paths[:1], ranker)


@planted("turret.training.baselines.interactions:Interactions.training", "training/test_baselines.py")
def baselines_learn_from_the_validation_part(original: Function) -> Function:
    find = original.__globals__["distinct_items"]
    return seeing(original, distinct_items=lambda data, users, until: find(data, users, "test"))


@planted("turret.training.baselines.popular:recent_counts", "training/test_baselines.py")
def recent_popularity_is_counted_over_all_events(original: Function) -> Function:
    return seeing(original, RECENT_SHARE=1.0)


@planted("turret.training.baselines.ease:ease_weights", "training/test_baselines.py")
def ease_keeps_the_weight_of_an_item_on_itself(original: Function) -> Function:
    return lambda counts, regularisation: original(counts, regularisation).fill_diagonal_(-1.0)


@planted("turret.training.auto.choice:_best", "training/test_auto.py")
def the_automatic_choice_picks_the_worst_trial(original: Function) -> Function:
    return seeing(original, max=min)


@planted("turret.training.auto.trials:run_trials", "training/test_auto.py")
def trials_of_all_candidates_have_as_many_epochs(original: Function) -> Function:
    return seeing(original, round=lambda epochs: 2)
