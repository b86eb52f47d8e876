"""The files of an invented shop."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from turret.data.errors import ConfigurationError, DataError
from turret.data.files import new_folder
from turret.data.synthetic.messy import MessyConfig, messy_tables
from turret.data.synthetic.shop import SyntheticConfig, shop_tables
from turret.data.synthetic.sources import FILES, write_sources

__all__ = ["MessyConfig", "SyntheticConfig", "synthesise"]

_FILES = ("events.csv", "items.csv", "users.csv")
_OVERWRITTEN = {*_FILES, *FILES}


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

    Their columns are those of `shop_tables` or of `messy_tables`. With `sources`, the files of
    `write_sources` stand in the place of `events.csv`. Raises `ConfigurationError` for sources of another
    shop than the messy one, and `DataError` when `target` exists, unless `overwrite` is given and `target`
    holds nothing but these files.
    """
    if sources and not isinstance(config, MessyConfig):
        raise ConfigurationError("--sources divides the log of the messy shop; give --messy, too")
    names = {path.name for path in target.iterdir()} if target.is_dir() else {target.name}
    if overwrite and target.exists() and (foreign := sorted(names - _OVERWRITTEN)):
        raise DataError(
            f"{target} also holds {foreign[0]!r}, so it is not overwritten; choose another folder"
        )
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
