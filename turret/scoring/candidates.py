"""The items of each user with fields, features and outcome: a table to train another ranker from."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import polars as pl

from turret.data.errors import ConfigurationError
from turret.data.prepared import PreparedData
from turret.scoring.run import Run, ScoreReport, write_tables
from turret.scoring.scorer import Block, Scorer

HeldOut = Literal["validation", "test"]


class Candidates:
    """Makes the table of a block: its answers, `taken`, and the columns `item.NAME` and `user.NAME`.

    An item is `taken` where it is among the targets of the part `held_out`, before which the history ends.
    Users without a target there are left out, as nothing is known of them.
    """

    def __init__(self, data: PreparedData, held_out: HeldOut) -> None:
        self._data, self._held_out = data, held_out
        rows = range(len(data.item_ids))
        fields: dict[str, Any] = dict(data.fields)
        known = [data.item_features.raw(row) for row in rows]
        for feature in data.item_features.features:
            fields.setdefault(feature.name, [values.get(feature.name) for values in known])
        self._items = _columns("item", fields).with_columns(
            pl.Series("item_id", list(map(str, data.item_ids.ids(rows))))
        )

    def table(self, scorer: Scorer, block: Block, is_whole: bool) -> pl.DataFrame:
        """The rows of a block of users."""
        known = [self._data.users.row(user) for user in block.users]
        rows = [0 if row is None else row for row in known]  # each is in the data
        targets = [self._data.targets(row, self._held_out) for row in rows]
        answers = scorer.table(block, is_whole)
        taken = pl.DataFrame(
            {
                "user_id": _repeated(block.users, [*map(len, targets)]),
                "item_id": [str(item) for items in targets for item in self._data.item_ids.ids(items)],
            },
            schema={"user_id": pl.String, "item_id": pl.String},
        ).unique()
        users = self._users(rows, block)
        key = answers.select(pl.col("user_id", "item_id").cast(pl.String))
        joined = key.join(
            taken.with_columns(taken=True), on=["user_id", "item_id"], how="left", maintain_order="left"
        )
        joined = joined.with_columns(pl.col("taken").fill_null(False))
        joined = joined.join(self._items, on="item_id", how="left", maintain_order="left")
        joined = joined.join(users, on="user_id", how="left", maintain_order="left")
        return pl.concat([answers, joined.drop("user_id", "item_id")], how="horizontal")

    def _users(self, rows: Iterable[int], block: Block) -> pl.DataFrame:
        """The features of users, in the types of the data, so that all parts have the same columns."""
        raw = [self._data.user_features.raw(row) for row in rows]
        types = {
            feature.name: _TYPES.get(feature.kind, pl.String())
            for feature in self._data.user_features.features
        }
        values = {name: [_plain(each.get(name), kind) for each in raw] for name, kind in types.items()}
        named = {f"user.{name}": pl.Series(values[name], dtype=kind) for name, kind in types.items()}
        return pl.DataFrame(
            {"user_id": pl.Series(list(map(str, block.users)), dtype=pl.String), **named}
        ).unique("user_id")


_TYPES: Mapping[str, pl.DataType] = {"number": pl.Float64(), "multi": pl.List(pl.String())}


def _plain(value: Any, kind: pl.DataType) -> Any:
    if value is None or isinstance(kind, pl.Float64):
        return value
    return [str(each) for each in value] if isinstance(kind, pl.List) else str(value)


def _repeated(values: Iterable[Any], counts: list[int]) -> list[str]:
    return np.repeat(np.array(list(map(str, values)), dtype=object), counts).tolist()


def _columns(prefix: str, columns: Mapping[str, Any]) -> pl.DataFrame:
    """A table of columns of values of any kind; a column of several kinds is of texts."""
    table: dict[str, pl.Series] = {}
    for name, values in columns.items():
        try:
            table[f"{prefix}.{name}"] = pl.Series(values)
        except TypeError:
            table[f"{prefix}.{name}"] = pl.Series([None if each is None else str(each) for each in values])
    return pl.DataFrame(table)


def score_candidates(run: Run, held_out: HeldOut) -> ScoreReport:
    """Write the items of each user with a target in `held_out` of prepared data, with fields and features.

    Each history ends before its first target there, and is asked about at the time of this target. Raises
    ConfigurationError without prepared data, and as `run.write_tables`.
    """
    if run.source.data is None:
        raise ConfigurationError("the items that users then took are in prepared data; add --data DIR")
    candidates = Candidates(PreparedData.open(run.source.data), held_out)
    return write_tables(f"candidates {held_out}", candidates.table, replace(run, history=held_out))
