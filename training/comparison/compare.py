"""`turret compare`: paired differences of runs over the users that all of them were evaluated on."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from turret.data.text import count, figure, signed_with_interval, text_table, with_interval
from turret.training.comparison.seeds import SeedRuns, spread
from turret.training.config.experiment import named_settings
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import TOWERS, EvaluatedPart, summarise
from turret.training.evaluation.metrics import NEW, USED, Values
from turret.training.evaluation.per_user import load_per_user
from turret.training.run import MODEL, PER_USER, Run
from turret.training.verdict.findings import best_baseline_finding

# The seed of the resamples: the same for all pairs of runs.
SEED = 0


@dataclass(frozen=True)
class Candidate:
    """One side of a comparison: a run, or the runs of several seeds as their average."""

    folder: Path
    runs: tuple[Run, ...]

    @classmethod
    def open(cls, folder: Path) -> "Candidate":
        """Open a run, or the finished runs of a folder of `turret train --seeds`."""
        several = SeedRuns.read(folder)
        return cls(folder, tuple(several.finished_runs()) if several else (Run.read(folder),))

    @property
    def is_several(self) -> bool:
        """Whether the folder is one of several seeds."""
        return self.folder != self.runs[0].folder

    @property
    def seeds(self) -> list[int]:
        """The seed of each run."""
        return [run.experiment.training.seed for run in self.runs]

    def settings(self) -> dict[str, Any]:
        """The settings by dotted names; of several seeds `training.seed` is their list."""
        named = named_settings(self.runs[0].experiment)
        return {**named, "training.seed": self.seeds} if self.is_several else named


def open_candidates(folders: Sequence[Path]) -> list[Candidate]:
    """Open the runs of a comparison. Raises TrainingError for fewer than two, or what `Run.read` raises."""
    if len(folders) < 2:
        raise TrainingError("a comparison needs at least two runs; name another one.")
    return [Candidate.open(folder) for folder in folders]


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
    candidates = open_candidates(folders)
    values, used = _common_values(candidates, part)
    replicates = candidates[0].runs[0].experiment.evaluation.bootstrap
    everyone = np.ones(len(used), dtype=bool)
    described = [
        {
            "run": str(candidate.folder),
            "seeds": candidate.seeds if candidate.is_several else None,
            **measured,
            "deviation": _deviation(candidate, part) if candidate.is_several else None,
            "baseline": _best_baseline(candidate, part),
            **_cost(candidate),
            **_size(candidate),
        }
        for candidate, measured in zip(candidates, _measured(values, everyone, replicates), strict=True)
    ]
    if slices is None:
        slices = {USED: used, NEW: ~used} if used.any() and not used.all() else {}
    elif any(len(members) != len(used) for members in slices.values()):
        raise TrainingError("The runs were evaluated on other users of this data; evaluate them all again.")
    return {
        "part": part,
        "users": len(used),
        "same_data": len({run.fingerprint for candidate in candidates for run in candidate.runs}) == 1,
        "runs": described,
        "slices": {
            name: {"users": int(members.sum()), "runs": _measured(values, members, replicates)}
            for name, members in slices.items()
        },
        "settings": _differing(candidates),
    }


def _common_values(
    candidates: Sequence[Candidate], part: EvaluatedPart
) -> tuple[list[dict[str, Values]], NDArray[np.bool_]]:
    """The metrics that all runs have, over their common users, and which of these take an item again.

    A user for whom one of the runs lacks a metric, as the AUC without negatives, has NaN in all of them.
    """
    tables = []
    for candidate in candidates:
        for run in candidate.runs:
            if part not in run.metrics():
                raise TrainingError(
                    f"{run.folder}: its model is not evaluated on the {part} part; run `turret evaluate "
                    f"{candidate.folder} --part {part}` first."
                )
        tables.append(load_per_user(*(run.folder / PER_USER[part] for run in candidate.runs)))
    first = tables[0]
    shared = set.intersection(*(set(table.users) for table in tables))
    users = [user for user in first.users if user in shared]
    values: list[dict[str, Values]] = [{} for _ in tables]
    places = []
    for table in tables:
        row_of = {user: row for row, user in enumerate(table.users)}
        places.append(np.array([row_of[user] for user in users], dtype=np.int64))
    for name in first.values[TOWERS]:
        if not all(name in table.values[TOWERS] for table in tables):
            continue
        columns = [table.values[TOWERS][name][rows] for table, rows in zip(tables, places, strict=True)]
        lacking = np.isnan(columns).any(axis=0)
        if not lacking.all():
            for own, column in zip(values, columns, strict=True):
                own[name] = np.where(lacking, np.nan, column)
    if not users or not values[0]:
        missing = "user" if not users else "metric"
        folders = ", ".join(str(candidate.folder) for candidate in candidates)
        raise TrainingError(
            f"{folders}: the evaluations have no {missing} in common; compare runs on the same data, "
            "with a common k in evaluation.k."
        )
    return values, first.used_before[places[0]]


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


def _best_baseline(candidate: Candidate, part: EvaluatedPart) -> dict[str, Any] | None:
    """The finding about the best baseline of its evaluation; None where that can't tell, or is not stored."""
    seeds = SeedRuns.read(candidate.folder)
    reports = candidate.runs[0].metrics() if seeds is None else seeds.evaluations()
    return best_baseline_finding(reports[part]) if part in reports else None


def _deviation(candidate: Candidate, part: EvaluatedPart) -> dict[str, float | None]:
    """The sample standard deviation of each metric over seeds; None of a single one."""
    tables = [load_per_user(run.folder / PER_USER[part]).values[TOWERS] for run in candidate.runs]
    means = {name: [float(np.nanmean(table[name])) for table in tables] for name in tables[0]}
    return {name: spread(own)["deviation"] for name, own in means.items()}


def _cost(candidate: Candidate) -> dict[str, Any]:
    """Seconds, epochs and steps of training: means over seeds; None where a checkpoint is missing."""
    progress = [progress for run in candidate.runs if (progress := run.progress()) is not None]
    if len(progress) < len(candidate.runs):
        return {"seconds": None, "epochs": None, "steps": None}
    figures: dict[str, list[float] | list[int]] = {
        "seconds": [one.seconds for one in progress],
        "epochs": [one.epoch for one in progress],
        "steps": [one.step for one in progress],
    }
    return {name: sum(own) / len(own) if len(own) > 1 else own[0] for name, own in figures.items()}


def _size(candidate: Candidate) -> dict[str, int]:
    """The number of parameters in the model's file, and its size: the same for every seed."""
    path = candidate.runs[0].folder / MODEL
    with safe_open(path, framework="numpy") as stored:
        shapes = [stored.get_slice(name).get_shape() for name in stored.keys()]  # noqa: SIM118 (no mapping)
    return {"parameters": int(sum(np.prod(shape) for shape in shapes)), "bytes": path.stat().st_size}


def _differing(candidates: Sequence[Candidate]) -> dict[str, list[Any]]:
    settings = [candidate.settings() for candidate in candidates]
    names = dict.fromkeys(name for named in settings for name in named)
    columns = {name: [named.get(name) for named in settings] for name in names}
    return {name: column for name, column in columns.items() if any(value != column[0] for value in column)}


def compare_runs(folders: Sequence[Path], part: EvaluatedPart, metric: str, as_json: bool) -> None:
    """Compare runs with the first of them: print a table by `metric`, or JSON with all metrics.

    Raises:
        TrainingError: the runs can't be compared, or have no such metric in common.
    """
    report = compare(folders, part)
    metrics = report["runs"][0]["metrics"]
    if metric not in metrics:
        raise TrainingError(f"--metric {metric}: the runs have {', '.join(metrics)} in common; name one.")
    print(json.dumps(report, indent=2) if as_json else comparison_table(report, metric))


def comparison_table(report: dict[str, Any], metric: str) -> str:
    """A table of the runs by one metric, their baselines, slices, and the settings that differ."""
    runs = report["runs"]
    numbers = [str(number) for number in range(1, len(runs) + 1)]
    parts = [
        text_table(
            ("run", metric, "difference from 1", "epochs", "seconds", "parameters", "MB"),
            [
                (
                    number,
                    with_interval(run["metrics"][metric]),
                    signed_with_interval(run["difference"][metric]) if run["difference"] else "",
                    *(count(run[name]) for name in ("epochs", "seconds", "parameters")),
                    f"{run['bytes'] / 1e6:.1f}",
                )
                for number, run in zip(numbers, runs, strict=True)
            ],
            f"{report['part']} part: {report['users']:,} common users",
            "mean over users [95 % bootstrap interval]; differences are paired by user",
        )
    ]
    for number, run in zip(numbers, runs, strict=True):
        parts.append(f"{number}: {run['run']}{_seeds(run, metric)}")
        if run["baseline"]:
            parts.append(f"   {run['baseline']['sentence']}")
    if report["slices"]:
        slices = [
            (name, f"{group['users']:,}", *(_with_difference(run, metric) for run in group["runs"]))
            for name, group in report["slices"].items()
            if metric in group["runs"][0]["metrics"]  # unlike the AUC of users without negatives
        ]
        title = f"slices: {metric}, and the difference from 1"
        parts.append(text_table(("slice", "users", *numbers), slices, title))
    if report["settings"]:
        settings = [
            (name, *("" if value is None else str(value) for value in values))
            for name, values in report["settings"].items()
        ]
        parts.append(text_table(("setting", *numbers), settings, "settings that differ"))
    else:
        parts.append("The runs have the same settings.")
    if not report["same_data"]:
        parts.append(
            "The runs were trained on different data: differences are those of data and settings together, "
            "over the users that all evaluations have."
        )
    return "\n".join(parts)


def _seeds(run: dict[str, Any], metric: str) -> str:
    """The number of seeds that a run is the mean of, and their deviation."""
    if run["seeds"] is None:
        return ""
    deviation = run["deviation"][metric]
    spread = "" if deviation is None else f", standard deviation of {metric} {deviation:.4f}"
    return f" (mean of {len(run['seeds'])} seeds{spread})"


def _with_difference(run: dict[str, Any], metric: str) -> str:
    gain = f", {signed_with_interval(run['difference'][metric])}" if run["difference"] else ""
    return figure(run["metrics"][metric]) + gain
