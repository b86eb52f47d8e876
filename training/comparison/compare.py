"""Several runs beside each other, and the runs of several seeds as one.

`turret compare` has paired differences of runs over the users that all of them were evaluated on.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from turret.training.config.experiment import named_settings
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import TOWERS, EvaluatedPart, differences, summarise
from turret.training.evaluation.metrics import NEW, USED, Values, difference_interval
from turret.training.evaluation.per_user import load_per_user
from turret.training.run import MODEL, PER_USER, RUN, Run
from turret.training.verdict.verdict import best_baseline_finding, main_metric, told_findings

_MOST, _LIMIT = 1000, 2**32
# Findings of these kinds are about the data and the settings, so they are the same for all seeds.
_UNREAD = ("unread_features", "unread_context", "unread_order")
_OF_DATA = ("baseline_limits", "baseline_left_out", *_UNREAD, "repeats")
Runs = Sequence[Run]
"""One side of a comparison: a run, or the runs of several seeds as their average."""


def parse_seeds(text: str) -> tuple[int, ...]:
    """The seeds of "0-4" or "0,1,5", each once. Raises TrainingError for other texts, and for too many."""
    seeds: dict[int, None] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,10})(?:\s*-\s*(\d{1,10}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last >= _LIMIT:
            raise TrainingError(
                f"--seeds {text}: {part.strip()!r} is no seed and no range; give numbers and ranges below "
                "2^32, such as 0-4 or 0,1,5."
            )
        if last - first >= _MOST or len(seeds) >= _MOST:
            raise TrainingError(f"--seeds {text}: that is more than {_MOST:,} seeds; name fewer.")
        seeds |= dict.fromkeys(range(first, last + 1))
    return tuple(seeds)


def seed_folder(folder: Path, seed: int) -> Path:
    """The folder of one run of several seeds, such as `seed-0`."""
    return folder / f"seed-{seed}"


def begun_seeds(folder: Path) -> list[int]:
    """The seeds whose training has begun in a folder; none in the folder of a single run."""
    names = (path.parent.name.removeprefix("seed-") for path in folder.glob(f"seed-*/{RUN}"))
    return sorted(int(name) for name in names if name.isdecimal())


def is_finished(run: Run) -> bool:
    """Whether the training of a run, the choice of its factors of pairs and its refit have ended."""
    progress, has_model = run.progress(), (run.folder / MODEL).is_file()
    is_trained = progress is not None and progress.finished and has_model
    return is_trained and not run.lacks_pairs() and not run.lacks_refit()


def open_runs(folder: Path) -> list[Run]:
    """The run of a folder, or the finished runs of its seeds. Raises TrainingError if there is none."""
    if not (seeds := begun_seeds(folder)):
        return [Run.read(folder)]
    runs = [run for seed in seeds if is_finished(run := Run.read(seed_folder(folder, seed)))]
    if not runs:
        raise TrainingError(
            f"{folder}: no seed is trained to its end yet; let `turret train --run {folder} --resume` finish."
        )
    return runs


def spread(values: Sequence[float]) -> dict[str, Any]:
    """The `mean`, the sample standard `deviation` (None for one value), and the `values` themselves."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    if deviation is not None and min(values) == max(values):
        deviation = 0.0  # without the rounding error of the mean
    return {"mean": float(np.mean(values)), "deviation": deviation, "values": list(values)}


def training_summary(runs: Sequence[Run]) -> dict[str, Any]:
    """The spread of the training figures of finished runs.

    The metrics are the best validation metric and those of its slots; data without a validation part has no
    such entries.
    """
    ends = [end for run in runs if (end := run.progress()) is not None]
    best = [value for run in runs if (value := run.best())]
    names = [name for name in best[0] if all(name in metrics for metrics in best)] if best else []
    return {
        **{f"validation {name}": spread([metrics[name] for metrics in best]) for name in names},
        "epochs": spread([end.epoch for end in ends]),
        "seconds": spread([end.seconds for end in ends]),
    }


def evaluation_summary(runs: Sequence[Run], part: EvaluatedPart) -> dict[str, Any]:
    """The evaluations of several seeds in one JSON-ready report.

    Returns:
        For each ranker and metric its `spread` over seeds, with the 95 % interval over users of the figures
        averaged over seeds (`low`, `high`); `differences` of the towers from each other ranker, paired by
        user after that average; and the `verdict` on these differences and on the data.
    """
    experiment = runs[0].experiment
    reports = [run.metrics()[part] for run in runs]
    values = load_per_user(*(run.folder / PER_USER[part] for run in runs)).values
    described = {
        name: {
            metric: {**spread([report[name][metric]["mean"] for report in reports]), **interval}
            for metric, interval in summarise(averaged).items()
        }
        for name, averaged in values.items()
    }
    counts = ("users", "users_with_negatives", "items", "relevant_items", "relevant_cold", "slots")
    report = {
        **{name: reports[0][name] for name in ("part", *counts, "exclude_seen") if name in reports[0]},
        "seeds": [run.experiment.training.seed for run in runs],
        **described,
        "differences": differences(values),
    }
    metric = main_metric(report, experiment)
    of_data = [finding for finding in reports[0]["verdict"] if finding["kind"] in _OF_DATA]
    return {**report, "verdict": [*told_findings(report, metric), *of_data], "metric": metric}


def open_sides(folders: Sequence[Path]) -> list[Runs]:
    """Open the runs of a comparison. Raises TrainingError for fewer than two, or the errors of `Run.read`."""
    if len(folders) < 2:
        raise TrainingError("a comparison needs at least two runs; name another one.")
    return [open_runs(folder) for folder in folders]


def compare(
    folders: Sequence[Path], part: EvaluatedPart, slices: Mapping[str, NDArray[np.bool_]] | None = None
) -> dict[str, Any]:
    """Compare runs with the first of them; a folder of several seeds counts as one run, their average.

    `slices` are groups of the users of the part by name, bool [U] each: by default the users who had used
    their first target before and the others, if there are both.

    Returns:
        A JSON-ready report: for each run its metrics over the common users, `difference` to the first run
        (`{mean, low, high}`, 95 % intervals, paired by user), cost and size, and `baseline`, the
        finding of its evaluation about the best baseline; `slices` with `metrics` and `difference` of each
        run; `slots`, the share of the targets in each half of an answer; and `settings`, the values of the
        settings that differ, in the order of the runs, None for a setting that a run lacks. With several
        seeds, each user's figures, the cost and the size are means, `seeds` lists the seeds, and `deviation`
        has the standard deviation of each metric over seeds.

    Raises:
        TrainingError: a run is not evaluated on `part`, the runs share no user or not all users of `slices`,
            or there are fewer than two runs.
    """
    sides = open_sides(folders)
    values, used = _common_values(folders, sides, part)
    every = [run for runs in sides for run in runs]
    measured = _measured(values, np.ones(len(used), dtype=bool))
    if slices is None:
        slices = {USED: used, NEW: ~used} if used.any() and not used.all() else {}
    elif any(len(members) != len(used) for members in slices.values()):
        raise TrainingError("The runs were evaluated on other users of this data; evaluate them all again.")
    settings = [named_settings(runs[0].experiment) for runs in sides]
    for folder, runs, named in zip(folders, sides, settings, strict=True):
        if runs[0].folder != folder:
            named["training.seed"] = _seeds(runs)
    names = dict.fromkeys(name for named in settings for name in named)
    columns = {name: [named.get(name) for named in settings] for name in names}
    return {
        "part": part,
        "users": len(used),
        "same_data": len({run.fingerprint for run in every}) == 1,
        "runs": [
            {"run": str(folder), **summary, **_described(folder, runs, part)}
            for folder, summary, runs in zip(folders, measured, sides, strict=True)
        ],
        "slices": {
            name: {"users": int(members.sum()), "runs": _measured(values, members)}
            for name, members in slices.items()
        },
        "slots": every[0].metrics()[part].get("slots", {}),
        "settings": {name: column for name, column in columns.items() if column != column[:1] * len(column)},
    }


def _common_values(
    folders: Sequence[Path], sides: Sequence[Runs], part: EvaluatedPart
) -> tuple[list[dict[str, Values]], NDArray[np.bool_]]:
    """The metrics that all runs have, over their common users, and which of these users take an item again.

    A user for whom a run lacks a metric, such as the AUC without negatives, has NaN in all runs.
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
            for metrics, column in zip(values, columns, strict=True):
                metrics[name] = np.where(lacking, np.nan, column)
    if not users or not values[0]:
        raise TrainingError(
            f"{', '.join(map(str, folders))}: the evaluations have no {'metric' if users else 'user'} in "
            "common; compare runs on the same data, with a common k in evaluation.k."
        )
    return values, tables[0].used_before[places[0]]


def _measured(values: Sequence[dict[str, Values]], members: NDArray[np.bool_]) -> list[dict[str, Any]]:
    """Each run's `metrics` for some of the users, and its `difference` to the first run."""
    summaries: list[dict[str, Any]] = []
    for run in values:
        gains = {name: (value - values[0][name])[members] for name, value in run.items()}
        metrics = summarise({name: value[members] for name, value in run.items()})
        difference = summarise(gains, difference_interval) if summaries else None
        summaries.append({"metrics": metrics, "difference": difference})
    return summaries


def _described(folder: Path, runs: Runs, part: EvaluatedPart) -> dict[str, Any]:
    """The seeds, the deviations of metrics over seeds, the finding about the best baseline, cost and size.

    An unknown figure is None. Costs of several seeds are means; the models of all seeds have the same size.
    """
    seeds, deviation, report = None, None, runs[0].metrics()[part]
    if runs[0].folder != folder:
        seeds, report = _seeds(runs), evaluation_summary(runs, part)
        tables = [load_per_user(run.folder / PER_USER[part]).values[TOWERS] for run in runs]
        means = {name: [float(np.nanmean(table[name])) for table in tables] for name in tables[0]}
        deviation = {name: spread(seed_means)["deviation"] for name, seed_means in means.items()}
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
