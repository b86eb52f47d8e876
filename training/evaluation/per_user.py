"""The metrics of each user, as Parquet beside a run's report."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from turret.data.files import new_file
from turret.data.vocabulary import Vocabulary
from turret.training.errors import TrainingError, naming_damage
from turret.training.evaluation.evaluation import Evaluated
from turret.training.evaluation.metrics import Values

USER, USED_BEFORE = "user", "used_before"


def save_per_user(path: Path, evaluated: Evaluated, users: Vocabulary) -> None:
    """Write a row a user: the id, whether the first target was used before, and each ranker's metrics.

    The columns of these have names such as `towers ndcg@10`.
    """
    columns: dict[str, Values | NDArray[np.bool_] | list[int | str]] = {
        USER: users.ids(evaluated.users),
        USED_BEFORE: evaluated.used_before,
    }
    for ranker, values in evaluated.values.items():
        columns |= {f"{ranker} {metric}": value for metric, value in values.items()}
    with new_file(path) as draft:
        pl.DataFrame(columns).write_parquet(draft, compression="zstd")


@dataclass(frozen=True)
class PerUser:
    """The metrics of U users: their ids, `used_before` bool [U], and values [U] by ranker and metric."""

    users: list[int | str]
    used_before: NDArray[np.bool_]
    values: dict[str, dict[str, Values]]


def load_per_user(*paths: Path) -> PerUser:
    """Read a file; of several, those of several seeds, each user's values are averaged.

    Rankers and metrics that not all files have are left out.

    Raises:
        TrainingError: a file is missing or holds something else, or they are about different users.
    """
    tables = [_read(path) for path in paths]
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


def _read(path: Path) -> pl.DataFrame:
    if not path.is_file():
        raise TrainingError(f"{path} is missing; evaluate the run again with `turret evaluate`.")
    with naming_damage(path, "evaluate the run again", OSError, pl.exceptions.PolarsError):
        table = pl.read_parquet(path)
        table.select(USER, USED_BEFORE)
    return table
