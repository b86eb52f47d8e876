"""The runs of several seeds in one folder, and the mean and deviation of their figures."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from turret.training.checkpoint import Progress
from turret.training.errors import TrainingError, naming_damage
from turret.training.evaluation.evaluation import EvaluatedPart, differences, summarise
from turret.training.evaluation.per_user import load_per_user
from turret.training.run import MODEL, PER_USER, RUN, SEEDS, Run, replace_json
from turret.training.verdict.findings import comparison_findings
from turret.training.verdict.verdict import main_metric

_MOST, _LIMIT = 1000, 2**32
# Findings about the data and the settings: the same for all seeds.
_OF_DATA = ("baseline_limits", "baseline_left_out", "unread_features", "unread_order", "repeats")


def parse_seeds(text: str) -> tuple[int, ...]:
    """The seeds of a text such as "0-4" or "0,1,5", each once.

    Raises:
        TrainingError: the text is no list of numbers and ranges, or names too many.
    """
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


@dataclass(frozen=True)
class SeedRuns:
    """A folder with a run for each seed, `seed-0` for example."""

    folder: Path
    seeds: tuple[int, ...]

    @classmethod
    def read(cls, folder: Path) -> "SeedRuns | None":
        """Read the seeds of a folder; None for a folder that holds something else.

        Raises:
            TrainingError: its seeds.json is damaged.
        """
        path = folder / SEEDS
        if not path.is_file():
            return None
        with naming_damage(path, "delete it, and train again"):
            stored = json.loads(path.read_text(encoding="utf-8"))
            return cls(folder, tuple(int(seed) for seed in stored["seeds"]))

    def with_seeds(self, seeds: Iterable[int]) -> "SeedRuns":
        """The same folder with more seeds, in rising order."""
        return SeedRuns(self.folder, tuple(sorted({*self.seeds, *seeds})))

    def run_folder(self, seed: int) -> Path:
        """The folder of one run."""
        return self.folder / f"seed-{seed}"

    def begun(self) -> list[int]:
        """The seeds whose training has begun."""
        return [seed for seed in self.seeds if (self.run_folder(seed) / RUN).is_file()]

    def finished(self) -> dict[int, Progress]:
        """The seeds whose training has ended, and its progress."""
        ended = {}
        for seed in self.begun():
            run = Run.read(self.run_folder(seed))
            progress = run.progress()
            if progress is not None and progress.finished and (run.folder / MODEL).is_file():
                ended[seed] = progress
        return ended

    def finished_runs(self) -> list[Run]:
        """The runs whose training has ended. Raises TrainingError if there is none."""
        runs = [Run.read(self.run_folder(seed)) for seed in self.finished()]
        if not runs:
            raise TrainingError(
                f"{self.folder}: no seed is trained to its end yet; let `turret train --run {self.folder} "
                "--resume` finish."
            )
        return runs

    def evaluations(self) -> dict[str, Any]:
        """The reports of `evaluation_summary` that are stored, by part."""
        stored = json.loads((self.folder / SEEDS).read_text(encoding="utf-8"))
        reports: dict[str, Any] = stored.get("evaluation", {})
        return reports

    def write(self, summary: dict[str, Any]) -> None:
        """Write `seeds.json`, with a summary of the runs."""
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_json(self.folder / SEEDS, {"seeds": list(self.seeds), **summary})


def spread(values: Sequence[float]) -> dict[str, Any]:
    """The `mean`, the sample standard `deviation` (None of one value), and the `values` themselves."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    if deviation is not None and min(values) == max(values):
        deviation = 0.0  # without the rounding error of the mean
    return {"mean": float(np.mean(values)), "deviation": deviation, "values": list(values)}


def training_summary(runs: SeedRuns) -> dict[str, Any]:
    """The finished seeds, and the spread of their training figures: JSON-ready.

    The metric is that of the best epoch on the validation part; data without one has no such entry.
    """
    finished = runs.finished()
    summary: dict[str, Any] = {"finished": list(finished), "training": {}}
    if not finished:
        return summary
    progress = list(finished.values())
    best = [one.best for one in progress if one.best is not None]
    if len(best) == len(progress):
        metric = Run.read(runs.run_folder(next(iter(finished)))).experiment.training.metric
        summary["training"][f"validation {metric}"] = spread(best)
    summary["training"]["epochs"] = spread([one.epoch for one in progress])
    summary["training"]["seconds"] = spread([one.seconds for one in progress])
    return summary


def evaluation_summary(runs: Sequence[Run], part: EvaluatedPart) -> dict[str, Any]:
    """The evaluations of several seeds in one JSON-ready report.

    Returns:
        For each ranker and metric its `spread` over seeds, with the 95 % interval over users of the figures
        averaged over seeds (`low`, `high`); `differences` of the towers from each other ranker, paired by
        user after that average, and the verdict: of these, and of the data.
    """
    experiment = runs[0].experiment
    replicates, seed = experiment.evaluation.bootstrap, experiment.training.seed
    reports = [run.metrics()[part] for run in runs]
    values = load_per_user(*(run.folder / PER_USER[part] for run in runs)).values
    described = {
        name: {
            metric: {**spread([report[name][metric]["mean"] for report in reports]), **interval}
            for metric, interval in summarise(own, replicates, seed).items()
        }
        for name, own in values.items()
    }
    counts = ("users", "users_with_negatives", "items", "relevant_items", "relevant_cold")
    report = {
        **{name: reports[0][name] for name in ("part", *counts, "exclude_seen") if name in reports[0]},
        "seeds": [run.experiment.training.seed for run in runs],
        **described,
        "differences": differences(values, replicates, seed),
    }
    metric = main_metric(report, experiment)
    report["verdict"] = [
        *(asdict(finding) for finding in comparison_findings(report, metric)),
        *(finding for finding in reports[0]["verdict"] if finding["kind"] in _OF_DATA),
    ]
    return {**report, "metric": metric}
