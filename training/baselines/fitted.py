"""An entry of the registry of baselines, and its fitted form."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.data.prepared import HistoryEnd, PreparedData
from turret.training.baselines.interactions import Offsets, Rows, distinct_items
from turret.training.evaluation.ranking import ScoresOf


@dataclass(frozen=True)
class Fitted:
    """A baseline fitted on the training part; `limits` says in words which limits of memory it met."""

    scores_of: ScoresOf
    limits: str = ""


def _always(data: PreparedData) -> str | None:
    return None


@dataclass(frozen=True)
class Baseline:
    """A ranker without training steps.

    Attributes:
        name: as in `--baselines`.
        title: the name in sentences, such as "EASE".
        fit: fits the baseline on the training part of the data; it scores users by their history before
            the given part, which is what the towers read.
        obstacle: the reason, as a clause, why the baseline can't be fitted on this data here, or None.
        of_own_use: whether it ranks the items that the user has used: it is always there where these are
            ranked, and nowhere else.
    """

    name: str
    title: str
    fit: Callable[[PreparedData, HistoryEnd], Fitted]
    obstacle: Callable[[PreparedData], str | None] = _always
    of_own_use: bool = False


HistoryScores = Callable[[Offsets, Rows], NDArray[np.float32]]
"""Scores [U, N] of users from the offsets [U + 1] and the rows [P] of their distinct items; 0: unknown."""


def by_history(scores: HistoryScores, data: PreparedData, until: HistoryEnd) -> ScoresOf:
    """Score users by the distinct items of their history before `until`.

    Items with a score of zero follow by their popularity in the training part; for users without a history,
    and where no item has a score, that is the order of the whole catalog.
    """
    behind = popularity_behind(data.item_counts("train"))

    def scores_of(users: NDArray[np.int64]) -> Tensor:
        offsets, items, _ = distinct_items(data, users, until)
        result = torch.from_numpy(scores(offsets, items))
        return torch.where(result == 0, behind, result)

    return scores_of


def popularity_behind(popularity: NDArray[np.int64]) -> Tensor:
    """Scores [N] in (-1, 0) by descending popularity, ties by ascending row: below every positive score."""
    ranks = np.empty(len(popularity), dtype=np.float32)
    ranks[np.argsort(-popularity, kind="stable")] = np.arange(1, len(popularity) + 1)
    return torch.from_numpy(-ranks / np.float32(len(popularity) + 1))
