"""The factors of pairs of items beside trained towers (`tower.scoring.pairs`), chosen by validation."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from turret.data.prepared import PreparedData
from turret.tower.repeats import Slot
from turret.training.checkpoint import ChosenPairs
from turret.training.config.experiment import ExperimentConfig
from turret.training.evaluation.evaluation import Relevant, summarise, values_of
from turret.training.evaluation.metrics import LEAST_USERS, Values, difference_interval
from turret.training.evaluation.ranking import tower_scores
from turret.training.pairs_start import pair_factors
from turret.training.randomness import seed_torch
from turret.training.run import Run
from turret.training.used_items import item_weights

# Factors are tried of such shares of the time of the log, up to its end, until a shorter one is no better. A
# weight is that of a product of factors against a score of the towers.
SHARES, WEIGHTS = (1.0, 0.5, 0.25, 0.125), (5.0, 10.0, 20.0, 40.0, 80.0)


class _Tried(NamedTuple):
    chosen: ChosenPairs
    table: Tensor
    values: Values


def add_pairs(
    run: Run, data: PreparedData, users: Relevant | None, slot: Slot, report: Callable[[str], None]
) -> None:
    """Put factors of pairs beside the trained towers of `run`, if they raise the validation metric.

    The part of the log and the weight are those with the highest metric; the factors are left out where the
    95 % interval of the difference over users begins below zero, or too few users measure it.
    """
    left_out = ChosenPairs(share=1.0, weight=0.0, validation={})
    if users is None or len(users.users) < LEAST_USERS:
        report(f"Factors of pairs are left out, as fewer than {LEAST_USERS} users have a validation part.")
        run.save_pairs(left_out, torch.empty(0))
        return
    experiment, model = run.experiment, run.open_model(data, "validation")
    metric, popularity = experiment.training.metric, item_weights(experiment, data)

    def measured(table: Tensor | None) -> Values:
        model.pairs = table
        scores_of = tower_scores(model, data, "validation", popularity)
        (values,) = values_of(scores_of, data, [(slot, users)], metric, experiment.evaluation).values()
        return values

    best: _Tried | None = None
    for share in SHARES if data.manifest.time.kind == "timestamp" else SHARES[:1]:
        factors, tried = _factors(experiment, data, share), list[_Tried]()
        for weight in WEIGHTS:
            table = factors * _scale(experiment, weight)
            values = measured(table)
            chosen = ChosenPairs(share=share, weight=weight, validation={metric: float(np.nanmean(values))})
            tried.append(_Tried(chosen, table, values))
        highest = max(tried, key=lambda trial: trial.chosen.validation[metric])
        if best is not None and highest.chosen.validation[metric] <= best.chosen.validation[metric]:
            break
        best = highest
    assert best is not None
    without = measured(None)
    gain = summarise({metric: best.values - without}, difference_interval)[metric]
    is_kept = gain["low"] > 0
    recent = f" in the newest {best.chosen.share:.1%} of the log's time" * (best.chosen.share < 1)
    report(
        f"validation {metric} {np.nanmean(without):.4f} without factors of pairs, "
        f"{best.chosen.validation[metric]:.4f} with those of pairs{recent}, at weight {best.chosen.weight:g}"
        f"{'' if is_kept else '; no clear gain, so they are left out'}"
    )
    run.save_pairs(*(best[:2] if is_kept else (left_out, torch.empty(0))))


def refit_pairs(run: Run, data: PreparedData) -> None:
    """Fit the chosen factors of `run` again, on the training part of `data`, for its refit."""
    if (chosen := run.chosen_pairs()) and chosen.weight:
        factors = _factors(run.experiment, data, chosen.share)
        run.save_pairs(chosen, factors * _scale(run.experiment, chosen.weight), is_refitted=True)


def _factors(experiment: ExperimentConfig, data: PreparedData, share: float) -> Tensor:
    """The factors of the pairs in the newest `share` of the time of the training part: [N, K]."""
    starts, ends = (np.asarray(bound) for bound in data.bounds("train"))
    seed_torch(experiment.training.seed, "pairs", 0)
    since = -np.inf
    if share < 1:
        used = ends > starts
        oldest, newest = float(data.times[starts[used]].min()), float(data.times[ends[used] - 1].max())
        since = newest - share * (newest - oldest)
    return pair_factors(data, experiment.tower.scoring.pairs, since)


def _scale(experiment: ExperimentConfig, weight: float) -> float:
    """The factor of both sides of a product that is divided by the temperature."""
    return float((weight * experiment.tower.scoring.temperature) ** 0.5)
