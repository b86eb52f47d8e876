"""The files of an invented shop."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl

from turret.data.answers.form import MINUTE, minute_file
from turret.data.errors import ConfigurationError, DataError
from turret.data.files import new_folder
from turret.data.synthetic.answers import KEY, AnswersConfig, answer_tables
from turret.data.synthetic.messy import MessyConfig, messy_tables
from turret.data.synthetic.shop import SyntheticConfig, shop_tables
from turret.data.synthetic.sources import FILES, write_sources

__all__ = ["AnswersConfig", "MessyConfig", "SyntheticConfig", "synthesise", "synthesise_answers"]

_FILES = ("events.csv", "items.csv", "users.csv")
ANSWERS, OUTCOMES, TRUTH, KEY_FILE = "answers", "outcomes.csv", "truth.json", "visitors.key"
_ANSWER_FILES = (*_FILES, ANSWERS, OUTCOMES, TRUTH, KEY_FILE)


@dataclass(frozen=True)
class Report:
    """The output of `synthesise`."""

    folder: Path
    users: int
    items: int
    events: int
    first: datetime
    last: datetime


def synthesise(
    config: SyntheticConfig | MessyConfig, target: Path, overwrite: bool = False, sources: bool = False
) -> Report:
    """Write `events.csv`, `items.csv` and `users.csv` of a synthetic shop into the new folder `target`.

    The columns of these files are those of `shop_tables` or of `messy_tables`. With `sources`, the files of
    `write_sources` stand in the place of `events.csv`. Raises `ConfigurationError` for sources of another
    shop than the messy one, and `DataError` when `target` exists, unless `overwrite` is given and `target`
    holds nothing but these files.
    """
    if sources and not isinstance(config, MessyConfig):
        raise ConfigurationError("--sources divides the log of the messy shop; give --messy, too")
    _check_overwritten(target, overwrite, (*_FILES, *FILES))
    with new_folder(target, overwrite) as folder:
        random = np.random.default_rng(config.seed)
        if isinstance(config, MessyConfig):
            *tables, times = messy_tables(config, random)
        else:
            *tables, times = shop_tables(config, random)
        for name, table in zip(_FILES[sources:], tables[sources:], strict=True):
            table.write_csv(folder / name, float_precision=2)
        if sources:
            write_sources(tables[0], folder, config.seed)
    first, last = (datetime.fromtimestamp(int(times[at]), UTC) for at in (0, -1))
    return Report(target, len(tables[2]), config.items, len(times), first, last)


def synthesise_answers(config: AnswersConfig, target: Path, overwrite: bool = False) -> str:
    """Write a shop with an answer log into the new folder `target`, and return a sentence about it.

    Beside the files of `synthesise`, whose events precede the answers, it has the log in `answers`, the
    events after them in `outcomes.csv`, the key of visitors, and the true values of both versions in
    `truth.json`. Raises DataError as `synthesise`.
    """
    _check_overwritten(target, overwrite, _ANSWER_FILES)
    shop = answer_tables(config)
    with new_folder(target, overwrite) as folder:
        for name, table in zip(_FILES, (shop.events, shop.items, shop.users), strict=True):
            table.write_csv(folder / name, float_precision=2)
        shop.outcomes.write_csv(folder / OUTCOMES)
        minutes = pl.col("time").dt.epoch("ms") // MINUTE
        for (minute,), answers in shop.answers.group_by(minutes, maintain_order=True):
            path = minute_file(folder / ANSWERS, int(minute) * MINUTE, "0")
            path.parent.mkdir(parents=True, exist_ok=True)
            answers.write_parquet(path)
        (folder / KEY_FILE).write_bytes(KEY)
        (folder / TRUTH).write_text(json.dumps(shop.truth, indent=2) + "\n", encoding="utf-8")
    return (
        f"{shop.answers.height:,} answers, {shop.outcomes.height:,} events after them and "
        f"{shop.events.height:,} before, of {config.users:,} users and {config.items:,} items, in {target}; "
        f"the canary's true lift is {shop.truth['lift']['purchases']:.1%}"
    )


def _check_overwritten(target: Path, overwrite: bool, files: tuple[str, ...]) -> None:
    names = {path.name for path in target.iterdir()} if target.is_dir() else {target.name}
    if overwrite and target.exists() and (foreign := sorted(names - {*files})):
        raise DataError(
            f"{target} also holds {foreign[0]!r}, so it is not overwritten; choose another folder"
        )
