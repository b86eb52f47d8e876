"""Validation of the rows of a log by Spark: the rules and verdicts of `data.events.events.validate`."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from turret.data.events.dropped_rows import NO_KIND, UNKNOWN_ITEM, UNREADABLE_TIME, WRONG_CLOCK
from turret.data.events.events import KIND_FILTER, PART, VERDICT, WEIGHT_FILTER, Log
from turret.data.events.ids import as_keys
from turret.data.events.labels import LABEL
from turret.data.manifest import Columns
from turret.data.reading.schema import FilterSettings, nulls_of
from turret.data.reading.tables import ROW, Table, readable
from turret.data.spark.exchange import given
from turret.data.spark.expressions import (
    TEXTS,
    finite,
    id_key,
    is_readable_id,
    is_short_integer,
    number,
    stripped,
)
from turret.data.spark.raw_rows import can_scan
from turret.data.spark.times import can_read, time_value
from turret.data.vocabulary import ID_LENGTH

ORDER = "__order"
_IDS = ("user", "item")
_PART_BITS = 56


class Rules:
    """The verdict on each row of a log, as Spark columns."""

    def __init__(self, log: Log, columns: Columns, filters: FilterSettings, nulls: Sequence[str]) -> None:
        schema = log.frame.collect_schema()
        self.log, self.columns, self.filters = log, columns, filters
        roles = (*_IDS, "kind", "quantity")
        self.nulls = {role: nulls_of(nulls, getattr(columns, role) or "") for role in roles}
        self.raw = {role: schema[f"raw_{role}"] for role in columns.model_dump(exclude_none=True)}
        self.keys = {role: schema[role] for role in _IDS}

    def apply_here(self) -> bool:
        """Tell whether Spark reads every column of this log as Polars does."""
        if "negatives" in self.raw or not all(map(can_scan, self.log.tables.values())):
            return False
        # All rare: these floats, ids that are floats, and a stated decimal mark.
        if pl.Float16 in self.raw.values() or self.log.float_ids or self.log.decimal != "auto":
            return False
        ids = all(is_readable_id(self.raw[role]) for role in _IDS)
        numbers = all(
            dtype in (pl.String, pl.Boolean) or dtype.is_float() or is_short_integer(dtype)
            for dtype in (self.raw[role] for role in ("weight", "quantity", "label") if role in self.raw)
        )
        kind = self.raw.get("kind", pl.String())
        kinds = kind in TEXTS or is_short_integer(kind)
        time = "time" not in self.raw or can_read(self.log.time, self.raw["time"])
        return ids and numbers and kinds and time and self._parts_agree()

    def _parts_agree(self) -> bool:
        """Tell whether the columns have one type in all parts and files."""
        schemas = [schema for table in self.log.tables.values() for schema in _schemas(table)]
        return all(
            schema.get(self.log.names[f"raw_{role}"]) == dtype
            for schema in schemas
            for role, dtype in self.raw.items()
        )

    def validated(self, rows: DataFrame, catalog: DataFrame | None) -> DataFrame:
        """Return the columns of events, ORDER and VERDICT, and ROW and the raw columns of other rows.

        `catalog` has the keys of the items file as `item` and `__known`.
        """
        values = {role: id_key(F.col(f"raw_{role}"), self.raw[role], self.nulls[role]) for role in _IDS}
        values["time"] = (
            F.col(ROW)
            if "time" not in self.raw
            else time_value(self.log.time, F.col("raw_time"), self.raw["time"])
        )
        weight = self._weight()
        if weight is not None:
            values["weight"] = weight
        if "label" in self.raw:
            values[LABEL] = self._label()
        if "quantity" in self.raw:
            values["quantity"] = self._number("quantity")
        frame = rows.withColumns(values)
        verdicts = self._bad(weight is not None)
        if catalog is not None:
            frame = frame.join(catalog, "item", "left")
            verdicts.append((F.col("__known").isNull(), UNKNOWN_ITEM))
        verdict = F.coalesce(*(F.when(condition, F.lit(name)) for condition, name in verdicts))
        frame = frame.withColumn(VERDICT, verdict)
        raw = [name for name in rows.columns if name.startswith("raw_")]
        optional = [name for name in ("weight", LABEL) if name in values]
        return frame.select(
            # The parts follow each other.
            (F.coalesce(F.shiftleft(F.col(PART).cast("long"), _PART_BITS), F.lit(0)) + F.col(ROW)).alias(
                ORDER
            ),
            *("user", "item", "time", PART, *optional, VERDICT),
            *(F.when(F.col(VERDICT).isNotNull(), F.col(name)).alias(name) for name in (ROW, *raw)),
        )

    def _number(self, role: str) -> Column:
        raw = F.col(f"raw_{role}")
        return number(stripped(raw), "float") if self.raw[role] == pl.String else finite(raw.cast("float"))

    def _label(self) -> Column:
        raw = F.col("raw_label")
        if self.raw["label"] == pl.String:
            text = F.lower(stripped(raw))
            value = F.when(text.isin("true", "false"), (text == "true").cast("double"))
            value = value.otherwise(number(text, "double"))
        else:
            value = raw.cast("double")
        return F.when(value.isin(-1.0, 0.0, 1.0), value).cast("byte")

    def _kind(self) -> Column:
        text = stripped(F.col("raw_kind").cast("string"))
        kind = F.when(~text.isin(*self.nulls["kind"]), text)
        return F.coalesce(kind, F.lit(self.filters.default_kind).cast("string"))

    def _weight(self) -> Column | None:
        weight = self._number("weight") if "weight" in self.raw else None
        if not self.filters.kind_weights:
            return weight
        kind = self._kind()
        weights = list(self.filters.kind_weights.items())
        by_kind = F.coalesce(*(F.when(kind == name, F.lit(value).cast("float")) for name, value in weights))
        return by_kind if weight is None else weight * by_kind

    def _bad(self, has_weights: bool) -> list[tuple[Column, str]]:
        """Return the conditions of bad rows with their verdicts; the first condition that holds decides."""
        verdicts: list[tuple[Column, str]] = []
        if kinds := self.filters.kept_kinds:
            kind = self._kind()
            verdicts += [(kind.isNull(), NO_KIND), (~kind.isin(*kinds), KIND_FILTER)]
        # Every integer and text is a key, unless it stands for no value.
        verdicts += [(F.col(role).isNull(), f"null {role}") for role in _IDS]
        texts = [role for role, dtype in self.keys.items() if dtype == pl.String]
        verdicts += [(F.length(role) > ID_LENGTH, f"id longer than {ID_LENGTH} characters") for role in texts]
        if "time" in self.raw:
            verdicts += [
                (F.col("raw_time").isNull(), "null time"),
                (F.col("time").isNull(), UNREADABLE_TIME),
            ]
        if self.log.time.likely is not None:
            verdicts.append((~F.col("time").between(*self.log.time.likely), WRONG_CLOCK))
        if "weight" in self.raw:
            verdicts.append((F.col("raw_weight").isNull(), "null weight"))
        if has_weights:
            verdicts.append((F.col("weight").isNull(), "unreadable weight"))
            if self.filters.min_weight is not None:
                least = F.lit(self.filters.min_weight).cast("float")
                verdicts.append((F.col("weight") < least, WEIGHT_FILTER))
            verdicts.append((F.col("weight") <= 0, "weight not above 0"))
        if "quantity" in self.raw:
            raw = F.col("raw_quantity")
            is_given = raw.isNotNull()
            if self.raw["quantity"] == pl.String:
                is_given &= ~stripped(raw).isin(*self.nulls["quantity"])
            verdicts += [
                (F.col("quantity").isNull() & is_given, "unreadable quantity"),
                (F.col("quantity") <= 0, "return (quantity not above 0)"),
            ]
        if "label" in self.raw:
            verdicts.append((F.col(LABEL).isNull(), "label other than 0 and 1, or -1 and 1"))
        return verdicts


def _schemas(table: Table) -> list[pl.Schema]:
    """Return the types of the columns of each file of a table."""
    if not table.is_parquet:
        return [table.frame.collect_schema()]
    with readable(table.path):
        return [pl.scan_parquet(file, glob=False).collect_schema() for file in table.files]


def known_items(session: SparkSession, catalog: pl.Series, dtype: pl.DataType, work: Path) -> DataFrame:
    """Return the ids of the items file as a Spark frame of keys."""
    keys = pl.Series("item", as_keys(catalog, dtype), dtype=dtype)
    return given(session, pl.DataFrame([keys]).with_columns(__known=True), work / "known.parquet")
