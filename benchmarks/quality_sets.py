"""The data sets of `benchmarks.quality`, and the protocol of each."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from turret.data.reading.schema import FilesSplit, PrepareConfig
from turret.data.reading.source_settings import ColumnSettings

HELD_OUT, TESTED, SEED = 0.1, 0.2, 0


def last_out(source: Path, scratch: Path) -> PrepareConfig:
    """The last item of each user is the test, the one before it the validation part."""
    return PrepareConfig(source=source / "interactions.parquet")


def last_out_of_shuffled_ties(source: Path, scratch: Path) -> PrepareConfig:
    """As `last_out`, with a user's events of one time in a random order, not in that of the file."""
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

    The fraction of an item in a tenth is the probability that it is held out. Rounded down, settings would be
    chosen without the users of fewer than ten items, a fifth of the users of the test.
    """
    rows = pl.read_parquet(source / "train.parquet")
    users = rows.select(pl.col("user_id").unique().sort())
    users = users.with_columns(pl.Series("extra", np.random.default_rng(SEED).random(len(users))))
    place, items = (column.over("user_id") for column in (pl.int_range(pl.len()), pl.len()))
    # Every user keeps an item to read.
    most = pl.min_horizontal((items * HELD_OUT + pl.col("extra")).floor(), items - 1)
    rows = rows.join(users, on="user_id", maintain_order="left").with_columns(held=place >= items - most)
    return _files(*_parted(rows, scratch, "train", "validation"), source)


def random_fifth(source: Path, scratch: Path) -> Path:
    """The folder of a log split like gowalla's: a random fifth of each user's distinct items is the test.

    The items are in a random order.
    """
    rows = pl.read_parquet(source / "interactions.parquet").select("user_id", "item_id")
    rows = rows.unique(maintain_order=True)
    rows = rows[np.random.default_rng(SEED).permutation(len(rows))].sort("user_id", maintain_order=True)
    place, items = (column.over("user_id") for column in (pl.int_range(pl.len()), pl.len()))
    _parted(rows.with_columns(held=place < (items * TESTED).floor()), scratch / "split", "train", "test")
    return scratch / "split"


def _parted(rows: pl.DataFrame, folder: Path, kept: str, held: str) -> tuple[Path, Path]:
    """Write the rows that are not `held` and those that are to two files, without that column."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, chosen in ((kept, ~pl.col("held")), (held, pl.col("held"))):
        rows.filter(chosen).select("user_id", "item_id").write_parquet(folder / f"{name}.parquet")
    return folder / f"{kept}.parquet", folder / f"{held}.parquet"


def whole(source: Path, scratch: Path) -> PrepareConfig:
    """All training items are trained on, and there is no validation part."""
    return _files(source / "train.parquet", None, source)


def _files(train: Path, validation: Path | None, source: Path) -> PrepareConfig:
    split = FilesSplit(
        kind="files",
        train=train,
        validation=validation,
        test=source / "test.parquet",
        validation_fraction=0.0,
    )
    return PrepareConfig(split=split, columns=ColumnSettings(in_file_order=True))


@dataclass(frozen=True)
class Published:
    """A figure from elsewhere, on the same split."""

    model: str
    figures: dict[str, float]
    source: str


@dataclass(frozen=True)
class QualitySet:
    """A data set with its protocol, and the experiment that is recommended for it.

    Attributes:
        name: the folder of the data.
        protocol: one sentence for people.
        experiment: the shipped experiment that is recommended for data of this kind.
        metrics: the reported metrics.
        files: the files below the folder whose hashes are in the result.
        prepared: gives the preparation with which settings are chosen on the validation part, from the folder
            of the set and a scratch folder.
        refitted: the same with the validation part put back into training; None where the protocol leaves it
            out.
        published: the figures of others.
        folder: where the files are, if not in the folder of this name.
    """

    name: str
    protocol: str
    experiment: str
    metrics: tuple[str, ...]
    files: tuple[str, ...]
    prepared: Callable[[Path, Path], PrepareConfig]
    refitted: Callable[[Path, Path], PrepareConfig] | None
    published: tuple[Published, ...]
    folder: str | None = None


_LAST_OUT = (
    "the last item of each user is the test, the one before it validation and not in the training data; the "
    "epoch is selected on validation NDCG@10"
)
_NGCF = (
    "the split of NGCF: settings and epochs are chosen on the last tenth of each user's training "
    "items, in the order of the file, then all of them are trained on. That part was chosen with the test in "
    "view, as it orders models like the test; a random tenth, the first choice, led to another recipe"
)


def _in_order(name: str, experiment: str, *published: Published) -> QualitySet:
    """A set whose histories have an order, and of which each user's last item is the test."""
    return QualitySet(
        name=name,
        protocol=_LAST_OUT,
        experiment=experiment,
        metrics=("hr@10", "ndcg@10", "hr@50", "ndcg@50"),
        files=("interactions.parquet",),
        prepared=last_out,
        refitted=None,
        published=published,
    )


_ML_1M = _in_order(
    "sasrec_ml-1m",
    "transformer",
    Published("WEARec, 200 items", {"hr@10": 0.3334, "ndcg@10": 0.1904}, "the authors' log, Xu et al. 2025"),
    Published("HSTU-large, 50 wide, its own split", {"hr@10": 0.3294, "ndcg@10": 0.1893}, "Zhai et al. 2024"),
    Published("SASRec, sampled softmax", {"hr@10": 0.3159, "ndcg@10": 0.1857}, "Klenitskiy & Vasilev 2023"),
    Published("gSASRec, 128 wide", {"hr@10": 0.3003, "ndcg@10": 0.1726}, "Petrov & Macdonald 2023"),
    Published("SASRec, binary", {"hr@10": 0.2500, "ndcg@10": 0.1341}, "Petrov & Macdonald 2023"),
    Published("YoutubeDNN of DeepMatch", {"hr@50": 0.3371}, "the library's documents"),
)
_BEAUTY = _in_order(
    "s3rec_beauty",
    "transformer_short",
    Published("WEARec", {"hr@10": 0.1041, "ndcg@10": 0.0614}, "the authors' log, Xu et al. 2025"),
    Published("TV-Rec", {"hr@10": 0.1017, "ndcg@10": 0.0608}, "the authors' log, Shin et al. 2025"),
    Published("BSARec", {"hr@10": 0.1004, "ndcg@10": 0.0609}, "Shin et al. 2024"),
    Published("eSASRec", {"hr@10": 0.0928, "ndcg@10": 0.0523}, "Tikhonovich et al. 2025"),
    Published("SASRec, sampled softmax", {"hr@10": 0.0921, "ndcg@10": 0.0531}, "Tikhonovich et al. 2025"),
    Published("SASRec, binary", {"hr@10": 0.0651, "ndcg@10": 0.0344}, "Tikhonovich et al. 2025"),
)
_BEAUTY_SHUFFLED = replace(
    _BEAUTY,
    name="s3rec_beauty_shuffled",
    protocol="s3rec_beauty with a user's events of the same day in a random order, and its recipe",
    prepared=last_out_of_shuffled_ties,
    published=(),
    folder=_BEAUTY.name,
)
_GOWALLA = QualitySet(
    name="gowalla",
    protocol=_NGCF,
    experiment="ids",
    metrics=("recall@20", "ndcg@20", "recall@50"),
    files=("train.parquet", "test.parquet"),
    prepared=last_tenth,
    refitted=whole,
    published=(
        Published("NESCL", {"recall@20": 0.1917, "ndcg@20": 0.1617}, "Sun et al. 2023"),
        Published("MF + BSL", {"recall@20": 0.1882, "ndcg@20": 0.1584}, "Wu et al. 2024"),
        Published("SimpleX", {"recall@20": 0.1872, "ndcg@20": 0.1557}, "Mao et al. 2021"),
        Published("UltraGCN", {"recall@20": 0.1862, "ndcg@20": 0.1580}, "Mao et al. 2021"),
        Published("LightGCN", {"recall@20": 0.1830, "ndcg@20": 0.1554}, "He et al. 2020"),
        Published("YouTubeDNN", {"recall@20": 0.1754, "ndcg@20": 0.1473}, "Mao et al. 2021"),
    ),
)


def _as_ids(folder: str) -> QualitySet:
    """The log of another set as ids without an order, on which gowalla's recipe is run unchanged."""
    return QualitySet(
        name=f"{folder}_as_ids",
        protocol="ids without an order, a random fifth of each user's items the test, and gowalla's recipe",
        experiment=_GOWALLA.experiment,
        metrics=_GOWALLA.metrics,
        files=("interactions.parquet",),
        prepared=lambda source, scratch: last_tenth(random_fifth(source, scratch), scratch),
        refitted=lambda source, scratch: whole(random_fifth(source, scratch), scratch),
        published=(),
        folder=folder,
    )


_ALL = (_ML_1M, _GOWALLA, _BEAUTY, _BEAUTY_SHUFFLED, _as_ids("sasrec_ml-1m"), _as_ids("s3rec_beauty"))
SETS = {quality_set.name: quality_set for quality_set in _ALL}
