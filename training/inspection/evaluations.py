"""The evaluation report behind a page: the stored one, or a new one."""

from collections.abc import Iterable, Sequence
from typing import Any

from turret.data.prepared import PreparedData
from turret.training.baselines.registry import chosen_baselines
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import EvaluatedPart
from turret.training.run import MODEL, PER_USER, Run


def evaluated_report(
    run: Run, data: PreparedData, part: EvaluatedPart, baselines: Sequence[str] = ()
) -> dict[str, Any]:
    """The report of `Run.evaluate`: the stored one, unless it is of an earlier model or lacks a baseline.

    Args:
        run: a run with a model.
        data: that of the run.
        part: the part with the targets.
        baselines: the names that the report must have, or "all"; popularity is always one.

    Raises:
        TrainingError: the run has no model yet, or as `Run.evaluate`.
    """
    check_model(run)
    stored: dict[str, Any] = run.metrics().get(part) or {}
    if stored and (run.folder / PER_USER[part]).is_file():
        wanted, _ = chosen_baselines(baselines, data, run.experiment.evaluation.exclude_seen)
        if all(one.name in stored["differences"] for one in wanted):
            return stored
    return run.evaluate(data, part, baselines)


def check_model(run: Run) -> None:
    """Raise TrainingError for a run whose training has not saved a model yet."""
    if not (run.folder / MODEL).is_file():
        raise TrainingError(
            f"{run.folder}: no model was saved yet, so there is nothing to report; let `turret train --run "
            f"{run.folder} --resume` reach its first evaluation."
        )


def best_baseline(report: dict[str, Any], metric: str) -> str:
    """The baseline of a report with the highest mean of a metric."""
    names: list[str] = list(report["differences"])
    return max(names, key=lambda name: float(report[name][metric]["mean"]))


def cut_off(metrics: Iterable[str], main: str, k: int | None) -> int:
    """The k of a page: that of `-k`, else that of the main metric, else the smallest.

    Args:
        metrics: the names of all metrics that were measured.
        main: the metric of training, such as ndcg@10, or auc.
        k: the value of `-k`.

    Raises:
        TrainingError: there are no metrics at this k.
    """
    known = [int(name.partition("@")[2]) for name in metrics if name.startswith("ndcg@")]
    if k is None:
        _, _, own = main.partition("@")
        return int(own) if own and int(own) in known else min(known)
    if k not in known:
        raise TrainingError(
            f"-k {k}: the evaluation has k = {', '.join(map(str, known))} (evaluation.k); name one of these."
        )
    return k
