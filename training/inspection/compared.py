"""Several runs on the same data, side by side: the comparison of `turret compare`, and that of each slice."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turret.data.prepared import PreparedData
from turret.training.comparison.compare import SEED, Candidate, compare
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import (
    TOWERS,
    EvaluatedPart,
    relevant_items,
    summarise,
    user_groups,
)
from turret.training.evaluation.metrics import Values
from turret.training.evaluation.per_user import mean_per_user
from turret.training.inspection.evaluations import evaluated_report
from turret.training.run import PER_USER


@dataclass(frozen=True)
class Compared:
    """Candidates, the first of which is the reference, and the report of `compare` about them."""

    candidates: list[Candidate]
    data: PreparedData
    report: dict[str, Any]

    def slices(self, metric: str) -> list["SliceComparison"]:
        """One metric of all candidates in each slice of users, with paired differences to the first."""
        part: EvaluatedPart = self.report["part"]
        relevant = relevant_items(self.data, part)
        values = [self._values(candidate, part, metric) for candidate in self.candidates]
        if any(len(own) != len(relevant.users) for own in values):
            raise TrainingError(
                "The runs were evaluated on other users of this data; evaluate them all again."
            )
        replicates = self.candidates[0].runs[0].experiment.evaluation.bootstrap
        found = []
        for name, members in user_groups(self.data, part, relevant).items():
            own = [summarise({metric: value[members]}, replicates, SEED).get(metric) for value in values]
            pairs = [
                summarise({metric: (value - values[0])[members]}, replicates, SEED).get(metric)
                for value in values[1:]
            ]
            found.append(SliceComparison(name, int(members.sum()), own, [None, *pairs]))
        return found

    def _values(self, candidate: Candidate, part: EvaluatedPart, metric: str) -> Values:
        _, values = mean_per_user([run.folder / PER_USER[part] for run in candidate.runs], TOWERS)
        return values[metric]


@dataclass(frozen=True)
class SliceComparison:
    """A slice, its users, and for each run a metric and its difference to the first run, as summaries."""

    name: str
    users: int
    metrics: list[dict[str, float] | None]
    differences: list[dict[str, float] | None]


def compared(folders: Sequence[Path], data: Path | None, part: EvaluatedPart) -> Compared:
    """Compare runs on the same data; those without an evaluation of their model are evaluated.

    Raises:
        TrainingError: there are fewer than two runs, they have different data, or one has no model yet.
    """
    if len(folders) < 2:
        raise TrainingError("a comparison needs at least two runs: turret report compare RUN RUN.")
    candidates = [Candidate.open(folder) for folder in folders]
    first = candidates[0].runs[0]
    for candidate in candidates[1:]:
        if candidate.runs[0].fingerprint != first.fingerprint:
            raise TrainingError(
                f"{folders[0]} and {candidate.folder} were trained on different data (another fingerprint); "
                "name runs on the same data. `turret compare` compares these over their common users."
            )
    prepared = first.open_data(data)
    for candidate in candidates:
        for run in candidate.runs:
            evaluated_report(run, run.open_data(prepared.folder), part)
    return Compared(candidates, prepared, compare(folders, part))
