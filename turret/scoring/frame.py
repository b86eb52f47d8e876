"""The recommendations of every user as a table in memory, for `Model.score`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from turret.data.files import scratch_folder
from turret.scoring.run import Run, Users, score
from turret.tower.bundle.bundle import Bundle


def score_frame(
    bundle: Bundle,
    data: Path | None,
    users: Path | None,
    store: str | None,
    by_index: bool,
    conditions: Mapping[str, Any],
) -> pl.DataFrame:
    """Score all users into a temporary file, and read it."""
    with scratch_folder() as folder:
        score(Run(bundle, Users(data, store, users), folder / "scores.parquet", conditions, by_index))
        return pl.read_parquet(folder / "scores.parquet", glob=False)
