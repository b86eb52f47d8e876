"""`turret compare`: paired differences of runs over the users that all of them were evaluated on."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from turret.training.comparison.seeds import evaluation_summary, open_runs, spread
from turret.training.config.experiment import named_settings
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import TOWERS, EvaluatedPart, summarise
from turret.training.evaluation.metrics import NEW, USED, Values
from turret.training.evaluation.per_user import load_per_user
from turret.training.run import MODEL, PER_USER, Run
from turret.training.verdict.verdict import best_baseline_finding

# The seed of the resamples: the same for all pairs of runs.
SEED = 0
Runs = Sequence[Run]
"""One side of a comparison: a run, or the runs of several seeds as their average."""


def open_sides(folders: Sequence[Path]) -> list[Runs]:
    """Open the runs of a comparison. Raises TrainingError for fewer than two, or what `Run.read` raises."""
    if len(folders) < 2:
        raise TrainingError("a comparison needs at least two runs; name another one.")
    return [open_runs(folder) for folder in folders]


def compare(
    folders: Sequence[Path], part: EvaluatedPart, slices: Mapping[str, NDArray[np.bool_]] | None = None
) -> dict[str, Any]:
    """Compare runs with the first of them; a folder of several seeds counts as one run, their average.

    `slices` name some of the users of the part, bool [U] each: by default those whose first target they had
    used before and the others, if there are both.

    Returns:
        A JSON-ready report: for each run its metrics over the common users, `difference` to the first run
        (`{mean, low, high}`, 95 % bootstrap intervals, paired by user), cost and size, and `baseline`, the
        finding of its evaluation about the best baseline; `slices` with `metrics` and `difference` of each
        run; and `settings`, the values of the settings that differ, in the order of the runs, None for a
        setting that a run lacks. Of several seeds, each user's figures, the cost and the size are means,
        `seeds` lists them, and `deviation` has the standard deviation of each metric over seeds.

    Raises:
        TrainingError: a run is not evaluated on `part`, they share no user, or not all those of `slices`;
            or there are fewer than two runs.
    """
    sides = open_sides(folders)
    values, used = _common_values(folders, sides, part)
    every = [run for runs in sides for run in runs]
    replicates = every[0].experiment.evaluation.bootstrap
    measured = _measured(values, np.ones(len(used), dtype=bool), replicates)
    if slices is None:
        slices = {USED: used, NEW: ~used} if used.any() and not used.all() else {}
    elif any(len(members) != len(used) for members in slices.values()):
        raise TrainingError("The runs were evaluated on other users of this data; evaluate them all again.")
    return {
        "part": part,
        "users": len(used),
        "same_data": len({run.fingerprint for run in every}) == 1,
        "runs": [
            {"run": str(folder), **own, **_described(folder, runs, part)}
            for folder, own, runs in zip(folders, measured, sides, strict=True)
        ],
        "slices": {
            name: {"users": int(members.sum()), "runs": _measured(values, members, replicates)}
            for name, members in slices.items()
        },
        "settings": _differing([_settings(*side) for side in zip(folders, sides, strict=True)]),
    }


def _common_values(
    folders: Sequence[Path], sides: Sequence[Runs], part: EvaluatedPart
) -> tuple[list[dict[str, Values]], NDArray[np.bool_]]:
    """The metrics that all runs have, over their common users, and which of these take an item again.

    A user for whom one of the runs lacks a metric, as the AUC without negatives, has NaN in all of them.
    """
    for folder, runs in zip(folders, sides, strict=True):
        for run in runs:
            if part not in run.metrics():
                raise TrainingError(
                    f"{run.folder}: its model is not evaluated on the {part} part; run `turret evaluate "
                    f"{folder} --part {part}` first."
                )
    tables = [load_per_user(*(run.folder / PER_USER[part] for run in runs)) for runs in sides]
    row_of = [{user: row for row, user in enumerate(table.users)} for table in tables]
    users = [user for user in tables[0].users if all(user in rows for rows in row_of)]
    places = [np.array([rows[user] for user in users], dtype=np.int64) for rows in row_of]
    values: list[dict[str, Values]] = [{} for _ in tables]
    for name in tables[0].values[TOWERS]:
        if not all(name in table.values[TOWERS] for table in tables):
            continue
        columns = [table.values[TOWERS][name][rows] for table, rows in zip(tables, places, strict=True)]
        lacking = np.isnan(columns).any(axis=0)
        if not lacking.all():
            for own, column in zip(values, columns, strict=True):
                own[name] = np.where(lacking, np.nan, column)
    if not users or not values[0]:
        raise TrainingError(
            f"{', '.join(map(str, folders))}: the evaluations have no {'metric' if users else 'user'} in "
            "common; compare runs on the same data, with a common k in evaluation.k."
        )
    return values, tables[0].used_before[places[0]]


def _measured(
    values: Sequence[dict[str, Values]], members: NDArray[np.bool_], replicates: int
) -> list[dict[str, Any]]:
    """Each run's `metrics` for some of the users, and its `difference` to the first run."""
    summaries: list[dict[str, Any]] = []
    for own in values:
        gains = {name: (value - values[0][name])[members] for name, value in own.items()}
        metrics = summarise({name: value[members] for name, value in own.items()}, replicates, SEED)
        difference = summarise(gains, replicates, SEED) if summaries else None
        summaries.append({"metrics": metrics, "difference": difference})
    return summaries


def _described(folder: Path, runs: Runs, part: EvaluatedPart) -> dict[str, Any]:
    """Seeds and deviations of metrics over them, the finding about the best baseline, cost and size.

    None for a figure that is unknown. Costs of several seeds are means; each has a model of the same size.
    """
    seeds, deviation, report = None, None, runs[0].metrics()[part]
    if runs[0].folder != folder:
        seeds, report = _seeds(runs), evaluation_summary(runs, part)
        tables = [load_per_user(run.folder / PER_USER[part]).values[TOWERS] for run in runs]
        means = {name: [float(np.nanmean(table[name])) for table in tables] for name in tables[0]}
        deviation = {name: spread(own)["deviation"] for name, own in means.items()}
    ends = [end for run in runs if (end := run.progress()) is not None]
    cost = {"seconds": "seconds", "epochs": "epoch", "steps": "step"}
    path = runs[0].folder / MODEL
    with safe_open(path, framework="numpy") as stored:
        shapes = [stored.get_slice(name).get_shape() for name in stored.keys()]  # noqa: SIM118 (no mapping)
    return {
        "seeds": seeds,
        "deviation": deviation,
        "baseline": best_baseline_finding(report),
        **{
            name: mean(getattr(end, field) for end in ends) if len(ends) == len(runs) else None
            for name, field in cost.items()
        },
        "parameters": int(sum(np.prod(shape) for shape in shapes)),
        "bytes": path.stat().st_size,
    }


def _seeds(runs: Runs) -> list[int]:
    return [run.experiment.training.seed for run in runs]


def _settings(folder: Path, runs: Runs) -> dict[str, Any]:
    """The settings by dotted names; of several seeds `training.seed` is their list."""
    named = named_settings(runs[0].experiment)
    return named if runs[0].folder == folder else {**named, "training.seed": _seeds(runs)}


def _differing(settings: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for named in settings for name in named)
    columns = {name: [named.get(name) for named in settings] for name in names}
    return {name: column for name, column in columns.items() if any(value != column[0] for value in column)}
