"""The runs of several seeds in one folder."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turret.training.checkpoint import Progress
from turret.training.config.experiment import ExperimentConfig
from turret.training.errors import TrainingError
from turret.training.run import MODEL, RUN, SEEDS, Run, replace_json

_MOST, _LIMIT = 1000, 2**32


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


def with_seed(experiment: ExperimentConfig, seed: int) -> ExperimentConfig:
    """The same experiment with another `training.seed`."""
    training = experiment.training.model_copy(update={"seed": seed})
    return experiment.model_copy(update={"training": training})


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
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            return cls(folder, tuple(int(seed) for seed in stored["seeds"]))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise TrainingError(
                f"{path}: it can't be read ({error!r}); delete it, and train again."
            ) from None

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
