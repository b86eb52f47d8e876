"""Writes the vectors whose inner products are the scores: those of items, or those of users."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import orjson
import polars as pl

from turret.data.errors import ConfigurationError
from turret.data.files import ArrayFile, new_file, scratch_folder
from turret.scoring.parts import check_place, polars_errors_told
from turret.scoring.run import PART, Run, Users, write_tables
from turret.scoring.scorer import Block, Scorer, check_one_vector, id_column
from turret.scoring.stored_users import OpenStore
from turret.service.overlay.fresh import empty_overlay
from turret.service.settings import read_settings
from turret.tower.bundle.bundle import Bundle
from turret.tower.config import ScoringConfig

Of = Literal["items", "users"]


def scoring_of(scoring: ScoringConfig) -> dict[str, str]:
    """The rule by which the inner product of two vectors becomes a score, for the metadata of a file."""
    return {
        "normalisation": "length 1" if scoring.kind == "cosine" and not scoring.pairs else "none",
        "temperature": repr(float(np.float32(scoring.temperature))),
        "absolute": str(scoring.absolute).lower(),
        "item_bias": str(scoring.item_bias).lower(),
    }


def words_of(scoring: ScoringConfig) -> str:
    """The same rule, for people."""
    product = "|user . item|" if scoring.absolute else "user . item"
    bias = "; the last column of an item is its bias, that of a user 1" if scoring.item_bias else ""
    is_unit = scoring.kind == "cosine" and not scoring.pairs
    length = "vectors have length 1" if is_unit else "vectors are not normalised"
    return f"score = {product} / {scoring.temperature:g}; {length}{bias}"


def write_vectors(bundle: Bundle, of: Of, target: Path, source: Users | None = None, part: int = PART) -> str:
    """Write the float32 vectors of a bundle's items, or of users, and return a sentence about them.

    A Parquet file has the columns `item_id` or `user_id`, and `vector`; a `.npy` file has the vectors [R, D],
    and `NAME.ids.jsonl` beside it the id of each row, a line each. Users without a known item have no vector.
    Raises ConfigurationError for another target, and as `run.write_tables`.
    """
    if target.suffix not in (".parquet", ".npy"):
        raise ConfigurationError(f"{target}: name a .parquet file, or a .npy file, with the ids beside it")
    check_place(target)
    if of == "users" and source is None:
        raise ConfigurationError("no users are named; add --data DIR, --store URL or --users FILE")
    if of == "users":
        check_one_vector(bundle, "a row of the file has one: ask POST /v1/vectors for those of a user")
    scoring = bundle.manifest.scoring
    rows, without = _written(bundle, of, target, source, part)
    left = f"; {without:,} users without a known item have none" if without > 0 else ""
    return (
        f"{rows:,} vectors of {bundle.manifest.dimension} numbers are in {target}{left}. {words_of(scoring)}"
    )


def _written(bundle: Bundle, of: Of, target: Path, source: Users | None, part: int) -> tuple[int, int]:
    """Write the vectors; return their number, and that of users who have none."""
    metadata = {"version": bundle.manifest.version, **scoring_of(bundle.manifest.scoring)}
    if target.suffix == ".parquet" and of == "users" and source is not None:
        report = write_tables("vectors", _user_table, Run(bundle, source, target, part=part), metadata)
        return report.rows, report.users - report.rows
    if target.suffix == ".parquet":
        table = _item_table(bundle, source)
        with new_file(target) as fresh, polars_errors_told(fresh):
            table.write_parquet(fresh, metadata=metadata)
        return table.height, 0
    with scratch_folder(target.parent) as folder:
        table_file = folder / "vectors.parquet"
        rows, without = _written(bundle, of, table_file, source, part)
        _as_array(table_file, target, bundle.manifest.dimension)
        return rows, without


def _user_table(scorer: Scorer, block: Block, is_whole: bool) -> pl.DataFrame:
    encoded = scorer.encode(block)
    users = [block.users[place] for place in encoded.places.tolist()]
    return _table("user_id", id_column(users, is_whole), encoded.vectors, scorer)


def _item_table(bundle: Bundle, source: Users | None) -> pl.DataFrame:
    """The items of a bundle; with a store, also those that are new, without those that were withdrawn."""
    fresh = empty_overlay(bundle)
    if source is not None and source.store is not None:
        with OpenStore(read_settings(store=source.store)) as store:
            fresh = store.fresh(bundle)
    scorer = Scorer(bundle, fresh)
    rows = np.arange(fresh.first_row + len(fresh.is_served))
    is_served = np.append(np.ones(fresh.first_row, dtype=np.bool_), fresh.is_served)
    is_served[fresh.withdrawn] = False
    rows = rows[is_served]
    return _table("item_id", scorer.items.gather(rows), scorer.view.vectors(rows), scorer)


def _table(name: str, ids: pl.Series, vectors: Any, scorer: Scorer) -> pl.DataFrame:
    dimension = scorer.model.bundle.manifest.dimension
    array = np.asarray(vectors, dtype=np.float32).reshape(-1, dimension)
    kind = pl.Array(pl.Float32, dimension)
    column = pl.Series(array, dtype=kind) if len(array) else pl.Series([], dtype=kind)
    return pl.DataFrame({name: ids, "vector": column})


def _as_array(table: Path, target: Path, dimension: int) -> None:
    """Write the vectors of a table as `.npy`, and its ids beside it, never beside those of other vectors."""
    beside = target.with_suffix(".ids.jsonl")
    with new_file(beside, 0o600) as ids, new_file(target, 0o600) as fresh, polars_errors_told(target):
        array = ArrayFile(fresh, np.float32, dimension)
        with ids.open("wb") as lines:
            for frame in pl.scan_parquet(table, glob=False).collect_batches(maintain_order=True):
                array.write(frame["vector"].to_numpy())
                for each in frame.to_series(0).to_list():
                    lines.write(orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE))
        array.close()
        beside.unlink(missing_ok=True)  # a kill between the two renames leaves vectors without ids
