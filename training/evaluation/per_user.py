"""The metrics of each user, as Parquet beside a run's report."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from turret.data.files.staging import new_file
from turret.data.vocabulary import Vocabulary
from turret.training.errors import TrainingError
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


def load_per_user(path: Path, ranker: str) -> tuple[list[int | str], dict[str, Values]]:
    """The user ids and the values [U] of one ranker by metric.

    Raises:
        TrainingError: the file is missing or holds something else.
    """
    table = _read(path)
    names = [name for name in table.columns if name.startswith(f"{ranker} ")]
    values = {name.partition(" ")[2]: table[name].to_numpy().astype(np.float64) for name in names}
    return table[USER].to_list(), values


def load_rankers(path: Path) -> list[str]:
    """The rankers in a file. Raises TrainingError as `load_per_user`."""
    return list(dict.fromkeys(name.partition(" ")[0] for name in _read(path).columns if " " in name))


def load_used_before(path: Path) -> NDArray[np.bool_]:
    """Which users' first target was used before: bool [U]. Raises TrainingError as `load_per_user`."""
    return _read(path)[USED_BEFORE].to_numpy()


def mean_per_user(paths: Sequence[Path], ranker: str) -> tuple[list[int | str], dict[str, Values]]:
    """As `load_per_user`, each user's values averaged over files: those of several seeds.

    Raises:
        TrainingError: a file is missing or holds something else, or they are about different users.
    """
    tables = [load_per_user(path, ranker) for path in paths]
    users, first = tables[0]
    if any(ids != users for ids, _ in tables):
        raise TrainingError(
            f"{paths[0]}: other seeds were evaluated on other users; evaluate them all again."
        )
    shared = [name for name in first if all(name in values for _, values in tables)]
    return users, {name: np.mean([values[name] for _, values in tables], axis=0) for name in shared}


def _read(path: Path) -> pl.DataFrame:
    try:
        table = pl.read_parquet(path)
        table.select(USER, USED_BEFORE)
    except FileNotFoundError:
        raise TrainingError(f"{path} is missing; evaluate the run again with `turret evaluate`.") from None
    except (OSError, pl.exceptions.PolarsError) as error:
        raise TrainingError(f"{path}: it can't be read ({error}); evaluate the run again.") from None
    return table
