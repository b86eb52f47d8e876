"""The evaluation report behind a page: the stored one, or a new one."""

from collections.abc import Sequence
from typing import Any

from turret.data.prepared import PreparedData
from turret.training.baselines.registry import chosen_baselines
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import EvaluatedPart
from turret.training.run import MODEL, PER_USER, Run


def evaluated_report(
    run: Run, data: PreparedData, part: EvaluatedPart, baselines: Sequence[str] = ()
) -> dict[str, Any]:
    """The report of `Run.evaluate`; evaluates only if the stored one is about another model or lacks a baseline.

    Args:
        run: a run with a model.
        data: that of the run.
        part: the part with the targets.
        baselines: the names that the report must have, or "all"; popularity is always one.

    Raises:
        TrainingError: the run has no model yet, or as `Run.evaluate`.
    """
    check_model(run)
    stored: dict[str, Any] | None = run.metrics().get(part)
    if stored is None or not (run.folder / PER_USER[part]).is_file() or _lacks(stored, baselines, data):
        return run.evaluate(data, part, baselines)
    return stored


def check_model(run: Run) -> None:
    """Raise TrainingError for a run whose training has not saved a model yet."""
    if not (run.folder / MODEL).is_file():
        raise TrainingError(
            f"{run.folder}: no model was saved yet, so there is nothing to report; let `turret train --run "
            f"{run.folder} --resume` reach its first evaluation."
        )


def best_baseline(report: dict[str, Any], metric: str) -> str:
    """The baseline of a report with the highest mean of a metric."""
    return max(report["differences"], key=lambda name: float(report[name][metric]["mean"]))


def cut_off(report: dict[str, Any], main: str, k: int | None) -> int:
    """The k of a page: that of `-k`, else that of the main metric, else the smallest.

    Raises:
        TrainingError: the report has no metrics at this k.
    """
    known = [int(name.partition("@")[2]) for name in report["towers"] if name.startswith("ndcg@")]
    if k is None:
        _, _, own = main.partition("@")
        return int(own) if own and int(own) in known else min(known)
    if k not in known:
        raise TrainingError(
            f"-k {k}: the run is evaluated at k = {', '.join(map(str, known))} (evaluation.k); name one of these."
        )
    return k


def _lacks(stored: dict[str, Any], baselines: Sequence[str], data: PreparedData) -> bool:
    wanted = chosen_baselines(baselines, data)[0]
    return any(one.name not in stored["differences"] for one in wanted)
