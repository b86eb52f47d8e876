"""The first k items that a run's model recommends to every user with a target."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turret.data.prepared import PreparedData
from turret.data.progress import progress
from turret.tower.towers.model import TwoTowers
from turret.training.evaluation.evaluation import EvaluatedPart, Relevant, hits_of, relevant_items
from turret.training.evaluation.ranking import ScoresOf, rank, tower_scores
from turret.training.run import Run


@dataclass(frozen=True)
class Rankings:
    """What the model of a run recommends on one part.

    Attributes:
        model: the trained towers.
        relevant: the users and their targets.
        rows: int32 [U, K], the recommended item rows, -1 for none.
        hits: bool [U, K], which of them are targets.
        scores_of: the model's scores, for further rankings.
    """

    data: PreparedData
    part: EvaluatedPart
    exclude_seen: bool
    model: TwoTowers
    relevant: Relevant
    rows: NDArray[np.int32]
    hits: NDArray[np.bool_]
    scores_of: ScoresOf

    def order(self, users: NDArray[np.int64]) -> NDArray[np.int64]:
        """The whole catalog ranked for a few user rows [V]: item rows [V, N], -1 behind masked ones."""
        count = len(self.data.item_ids)
        ranked = rank(self.scores_of, self.data, users, self.part, count, self.exclude_seen)
        return np.concatenate([block.rows for block in ranked])


def rankings_of(run: Run, data: PreparedData, part: EvaluatedPart, k: int) -> Rankings:
    """Rank the catalog as `turret evaluate` does, and keep the first `k` items of every user.

    Raises:
        TrainingError: the run has no model yet, or the part is empty.
    """
    model, relevant = run.map_model(data), relevant_items(data, part)
    scores_of = tower_scores(model, data, part, data.item_counts("train"), run.open_scores(data))
    exclude_seen, item_count = run.experiment.evaluation.exclude_seen, len(data.item_ids)
    rows = np.full((len(relevant.users), k), -1, dtype=np.int32)
    hits = np.zeros((len(relevant.users), k), dtype=bool)
    done = 0
    with progress("listing recommendations", len(relevant.users)) as advance:
        for block in rank(scores_of, data, relevant.users, part, k, exclude_seen):
            place = (slice(done, done + len(block.users)), slice(block.rows.shape[1]))
            rows[place] = block.rows
            hits[place] = hits_of(block.rows, relevant, done, item_count)
            done += len(block.users)
            advance(len(block.users))
    return Rankings(data, part, exclude_seen, model, relevant, rows, hits, scores_of)
