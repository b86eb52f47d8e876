"""How the files of the sets of `benchmarks.quality` are divided into training, validation and test."""

from pathlib import Path

import numpy as np
import polars as pl

from turret.data.reading.schema import ColumnSettings, FilesSplit, PrepareConfig

HELD_OUT, TESTED, SEED = 0.1, 0.2, 0


def last_out(source: Path, scratch: Path) -> PrepareConfig:
    """The last item of each user is the test, the one before it the validation part."""
    return PrepareConfig(source=source / "interactions.parquet")


def last_out_of_shuffled_ties(source: Path, scratch: Path) -> PrepareConfig:
    """The same with each user's events of one time in a random order, not in that of the file."""
    rows = pl.read_parquet(source / "interactions.parquet").sort("user_id", "pos")
    rows = rows.with_columns(
        time=pl.col("gap_seconds").cum_sum().over("user_id"),
        order=pl.Series(np.random.default_rng(SEED).random(len(rows))),
    )
    scratch.mkdir(parents=True, exist_ok=True)
    shuffled = rows.sort("user_id", "time", "order").select("user_id", "item_id")
    shuffled.write_parquet(scratch / "shuffled.parquet")
    return PrepareConfig(source=scratch / "shuffled.parquet", columns=ColumnSettings(in_file_order=True))


def last_tenth(source: Path, scratch: Path) -> PrepareConfig:
    """The last tenth of each user's training items, in the order of the file, is the validation part.

    Nothing says that the files have an order, yet they do: models rank on the last tenth as they do on the
    test, and on a random tenth they don't, which flatters models of items used together.
    """
    rows = pl.read_parquet(source / "train.parquet")
    rows = rows.with_columns(place=pl.int_range(pl.len()).over("user_id"))
    return _tenth_held_out(rows, np.random.default_rng(SEED), source, scratch)


def random_tenth(source: Path, scratch: Path) -> PrepareConfig:
    """A random tenth of each user's training items is the validation part."""
    rows, random = pl.read_parquet(source / "train.parquet"), np.random.default_rng(SEED)
    # The draws are NumPy's: a shuffle of polars comes out otherwise from one version to the next.
    rows = rows.with_columns(order=pl.Series(random.permutation(len(rows))))
    place = pl.len().over("user_id") - pl.col("order").rank("ordinal").over("user_id")
    return _tenth_held_out(rows.with_columns(place=place), random, source, scratch)


def _tenth_held_out(
    rows: pl.DataFrame, random: np.random.Generator, source: Path, scratch: Path
) -> PrepareConfig:
    """Hold out the tenth of each user's rows whose `place`, from 0, is highest.

    What a tenth leaves over is held out with that probability. Rounded down, settings would be chosen without
    the users of fewer than ten items, a fifth of those that the test asks about.
    """
    users = rows.select(pl.col("user_id").unique().sort())
    users = users.with_columns(pl.Series("extra", random.random(len(users))))
    items = pl.len().over("user_id")
    most = (items * HELD_OUT + pl.col("extra")).floor()
    # Nobody is left without an item to be read.
    most = pl.min_horizontal(most, items - 1)
    rows = rows.join(users, on="user_id", maintain_order="left")
    train, validation = _parted(
        rows.with_columns(held=pl.col("place") >= items - most), scratch, "train", "validation"
    )
    return _files(train, validation, source)


def random_fifth(source: Path, scratch: Path) -> Path:
    """The folder of a split of a log like gowalla's, a random fifth of each user's different items the test.

    They stand in an order that says nothing.
    """
    rows = pl.read_parquet(source / "interactions.parquet").select("user_id", "item_id")
    rows = rows.unique(maintain_order=True)
    rows = rows[np.random.default_rng(SEED).permutation(len(rows))].sort("user_id", maintain_order=True)
    place, items = (column.over("user_id") for column in (pl.int_range(pl.len()), pl.len()))
    _parted(rows.with_columns(held=place < (items * TESTED).floor()), scratch / "split", "train", "test")
    return scratch / "split"


def _parted(rows: pl.DataFrame, folder: Path, kept: str, held: str) -> tuple[Path, Path]:
    """Write the rows that are not `held`, and those that are, without saying which."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, chosen in ((kept, ~pl.col("held")), (held, pl.col("held"))):
        rows.filter(chosen).select("user_id", "item_id").write_parquet(folder / f"{name}.parquet")
    return folder / f"{kept}.parquet", folder / f"{held}.parquet"


def whole(source: Path, scratch: Path) -> PrepareConfig:
    """All training items are trained on, and there is no validation part."""
    return _files(source / "train.parquet", None, source)


def validated_on_test(source: Path, scratch: Path) -> PrepareConfig:
    """All training items are trained on, and the test is the validation part: for test-selected figures."""
    return _files(source / "train.parquet", source / "test.parquet", source)


def _files(train: Path, validation: Path | None, source: Path) -> PrepareConfig:
    split = FilesSplit(
        kind="files",
        train=train,
        validation=validation,
        test=source / "test.parquet",
        validation_fraction=0.0,
    )
    return PrepareConfig(split=split, columns=ColumnSettings(in_file_order=True))
