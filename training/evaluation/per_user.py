"""The metrics of each user, as Parquet beside a run's report."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from turret.data.files import new_file
from turret.training.errors import TrainingError, naming_damage
from turret.training.evaluation.metrics import Values

USER, USED_BEFORE = "user", "used_before"


@dataclass(frozen=True)
class PerUser:
    """The metrics of U users: their ids, and values [U] by ranker and metric.

    `used_before` [U] marks the users whose first target is in their history.
    """

    users: Sequence[int | str]
    used_before: NDArray[np.bool_]
    values: dict[str, dict[str, Values]]

    def write(self, path: Path) -> None:
        """Write one row per user; the columns of metrics have names such as `towers ndcg@10`."""
        columns = {
            f"{ranker} {metric}": value
            for ranker, values in self.values.items()
            for metric, value in values.items()
        }
        table = pl.DataFrame({USER: self.users, USED_BEFORE: self.used_before, **columns})
        with new_file(path) as draft:
            table.write_parquet(draft, compression="zstd")


def load_per_user(*paths: Path) -> PerUser:
    """Read a file, or average each user's values over the files of several seeds.

    Rankers and metrics that not all files have are left out.

    Raises:
        TrainingError: a file is missing or holds something else, or they are about different users.
    """
    tables = []
    for path in paths:
        if not path.is_file():
            raise TrainingError(f"{path} is missing; evaluate the run again with `turret evaluate`.")
        with naming_damage(path, "evaluate the run again", OSError, pl.exceptions.PolarsError):
            tables.append(pl.read_parquet(path, glob=False))
            tables[-1].select(USER, USED_BEFORE)
    first = tables[0]
    if any(not table[USER].equals(first[USER]) for table in tables):
        raise TrainingError(
            f"{paths[0]}: other seeds were evaluated on other users; evaluate them all again."
        )
    values: dict[str, dict[str, Values]] = {}
    for name in first.columns:
        ranker, space, metric = name.partition(" ")
        if space and all(name in table.columns for table in tables):
            columns = [table[name].to_numpy().astype(np.float64) for table in tables]
            values.setdefault(ranker, {})[metric] = np.mean(columns, axis=0)
    return PerUser(first[USER].to_list(), first[USED_BEFORE].to_numpy(), values)
