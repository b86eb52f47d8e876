"""The contexts of events in prepared data: the features of each, and the columns that leak the item."""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from turret.data.errors import ColumnError, brief
from turret.data.events.contexts import NO_CONTEXT, raw_names
from turret.data.events.event_arrays import PIECE
from turret.data.features.columns import Bag, Features, VectorRows
from turret.data.features.feature import KINDS, kind_named
from turret.data.files import open_array
from turret.data.histories.histories import Histories
from turret.data.manifest import FeatureSummary
from turret.data.prepared import CONTEXT_FEATURES, CONTEXTS
from turret.data.preparing.encoding import element_type, encode, is_printable
from turret.data.preparing.feature_readings import read_features
from turret.data.ranges import ranges
from turret.data.reading.columns import require
from turret.data.reading.numbers import numbers
from turret.data.reading.schema import EVERY, FeatureColumns, PrepareConfig
from turret.data.reading.tables import LogSource

# More distinct numbers, such as the seconds of a visit, are a number; fewer, such as hours, are a category.
_MOST_HOURS = 50
# A column leaks the item where it halves the bits of an item; a device or a page takes a few percent.
_LEAK = 0.5
_MOST_EVENTS = 1 << 20
_MOST_CONTEXTS = 1 << 20  # each is held in memory, with its features
_KNOWN_AFTER = ("item", "weight", "quantity", "kind", "label", "negatives")


def with_context(logs: Sequence[LogSource], entries: Sequence[str], is_continued: bool) -> list[LogSource]:
    """Return the sources with the columns of the contexts.

    The contexts of a log that is continued may be unknown. Raises ColumnError for a column that no source
    has, that holds records, or that is known only after the choice, as its role says.
    """
    names = tuple(column for column, _ in map(_parsed, entries))
    logs = [replace(log, context=names) for log in logs]
    for log in logs:
        frame = log.parts[0][1].frame.collect_schema()
        for name in raw_names(log).values():
            if not is_printable(element_type(frame[name])):
                raise ColumnError(
                    f"--context {name}: the column of {log.path} holds {brief(frame[name])}; give texts, "
                    "numbers, booleans or lists of them"
                )
            role = next((role for role in _KNOWN_AFTER if getattr(log.columns, role) == name), None)
            if role is not None:
                raise ColumnError(
                    f"--context {name}: the column holds the {role} of each event, which is known only after "
                    "the choice; leave it out of the context"
                )
    for name in () if is_continued else names:
        if not any(name in raw_names(log).values() for log in logs):
            require(name, logs[0].parts[0][1].columns, str(logs[0].path), "context")
    return logs


def _parsed(entry: str) -> tuple[str, str | None]:
    """Return the column and the kind of an entry COLUMN or COLUMN=KIND."""
    column, _, kind = entry.rpartition("=")
    return (column, kind) if column and kind in KINDS else (entry, None)


def add_contexts(
    folder: Path,
    config: PrepareConfig,
    keys: pl.Series,
    where: Path,
    user_features: Sequence[FeatureSummary],
    histories: Histories,
    splits: NDArray[np.int64],
) -> tuple[list[FeatureSummary], list[str]]:
    """Write the contexts of `write_contexts`, and return their features and sentences on leaks."""
    features = write_contexts(folder, config, keys, where, [feature.name for feature in user_features])
    listed = [FeatureSummary.model_validate(feature, from_attributes=True) for feature in features.features]
    return listed, leaks_of(folder, features, histories, splits)


def write_contexts(
    folder: Path, config: PrepareConfig, keys: pl.Series, where: Path, user_features: Collection[str]
) -> Features:
    """Number the contexts that events have, write their keys and features, and return the features.

    The events in `folder` have positions in `keys`; their contexts become rows in the order of the keys,
    after row 0, the unknown context. Raises ColumnError for a column with the name of one of `user_features`,
    for values that are not of their kind, and for too many contexts.
    """
    contexts = np.load(folder / "contexts.npy", mmap_mode="r+")
    is_used = np.zeros(len(keys), dtype=np.bool_)
    for first in range(0, len(contexts), PIECE):
        is_used[contexts[first : first + PIECE]] = True
    used = keys.filter(pl.Series(is_used))
    if len(used) > _MOST_CONTEXTS:
        raise ColumnError(
            f"--context: events have {len(used):,} distinct contexts, and the most is {_MOST_CONTEXTS:,}; "
            "leave a column of ids or of exact numbers out, or round it"
        )
    texts = [NO_CONTEXT, *used.filter(used != NO_CONTEXT).sort()]
    row_of = {text: row for row, text in enumerate(texts)}
    rows = np.array([row_of.get(text, 0) for text in keys], dtype=np.int32)
    for first in range(0, len(contexts), PIECE):
        contexts[first : first + PIECE] = rows[contexts[first : first + PIECE]]
    contexts.flush()
    (folder / CONTEXTS).write_text(json.dumps(texts, ensure_ascii=False), encoding="utf-8")
    features = _encoded(texts, config, where)
    for feature in features.features:
        if feature.name in user_features:
            raise ColumnError(
                f"--context {feature.name}: users have a feature of this name, and a tower reads each name "
                f"once; rename one of the columns, or leave the user's out with --user-ignore {feature.name}"
            )
    features.save(folder / CONTEXT_FEATURES)
    return features


def read_keys(folder: Path) -> pl.Series:
    """Return the keys of the contexts of prepared data, by row."""
    return pl.Series(json.loads((folder / CONTEXTS).read_text(encoding="utf-8")), dtype=pl.String)


def _encoded(texts: Sequence[str], config: PrepareConfig, where: Path) -> Features:
    """Encode the distinct contexts with these keys."""
    objects = [json.loads(text) if text else {} for text in texts]
    columns, kinds = list[pl.Series](), dict[str, list[str]]()
    for entry in config.context:
        name, kind = _parsed(entry)
        columns.append(pl.Series(name, [values.get(name) for values in objects], strict=False))
        kind = kind or _kind(columns[-1], config.format.decimal)
        if kind == "text" or kind_named(kind).reading == "vectors":
            raise ColumnError(
                f"--context {entry}: a context can't be a {kind}; give another kind, such as {name}=category"
            )
        is_ours = kind in FeatureColumns.model_fields
        kinds.setdefault(kind if is_ours else "other", []).append(name if is_ours else f"{kind}={name}")
    chosen = FeatureColumns(**{kind: tuple(names) for kind, names in kinds.items()}, ignore=(EVERY,))
    readings = read_features(pl.DataFrame(columns), chosen, where, "context", config.format)
    raw = {name: values.to_list() for name, values in readings.values.items()}
    named = {name: kind for kind, name in chosen.by_kind()}
    return encode(raw, named, {}, len(texts), written=readings.written)


def _kind(values: pl.Series, decimal: str) -> str:
    """Return the kind of a column by its distinct values: a list, a number, or a category."""
    if isinstance(values.dtype, pl.List):
        return "multi"
    known = values.drop_nulls()
    floats = numbers(known, decimal) if values.dtype == pl.String else known
    are_numbers = floats.dtype.is_numeric() and not floats.null_count()
    return "number" if are_numbers and floats.n_unique() > _MOST_HOURS else "category"


def leaks_of(folder: Path, contexts: Features, histories: Histories, splits: NDArray[np.int64]) -> list[str]:
    """Return a sentence for each feature of a context that tells the item of training events.

    Half of the users give the counts of items by value, and the events of the others are told by them: the
    mean of -log2 p(item | value) beside that of -log2 p(item). Counts by value are smoothed by one event that
    is spread by popularity.
    """
    starts = histories.offsets[:-1]
    counts = np.where(np.cumsum(splits[:, 0] - starts) <= _MOST_EVENTS, splits[:, 0] - starts, 0)
    positions = ranges(starts, counts)
    if histories.targets is not None:
        positions = positions[np.isin(open_array(folder / "kinds.npy", "int8")[positions], histories.targets)]
    items = open_array(folder / "items.npy", "int32")[positions].astype(np.int64)
    rows = open_array(folder / "contexts.npy", "int32")[positions]
    is_learnt = (np.searchsorted(histories.offsets, positions, side="right") & 1).astype(np.bool_)
    if not is_learnt.any() or is_learnt.all():
        return []
    return [
        f"--context {name} looks like a leak: its value leaves {left:.1f} bits of the item of another user's "
        f"event open, and popularity alone leaves {alone:.1f}, as if it were known only after the choice, "
        "like the price paid or the rating given; leave the column out, unless it is known before the choice"
        for name, values in _values_of(contexts)
        for left, alone in [_bits(items, values[rows], is_learnt, len(histories.items))]
        if left < (1.0 - _LEAK) * alone
    ]


def _values_of(contexts: Features) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield the name of each feature, and the number of its value in each row."""
    for name, column in contexts.columns.items():
        assert not isinstance(column, VectorRows)
        rows = range(len(column))
        values = [tuple(column.row(row)) if isinstance(column, Bag) else column[row] for row in rows]
        numbered = {value: number for number, value in enumerate(dict.fromkeys(values))}
        yield name, np.array([numbered[value] for value in values], dtype=np.int64)


def _bits(
    items: NDArray[np.int64], values: NDArray[np.int64], is_learnt: NDArray[np.bool_], item_count: int
) -> tuple[float, float]:
    """Return the mean bits of an item with its value, and by popularity alone, of events not learnt from."""
    popularity = np.bincount(items[is_learnt], minlength=item_count) + 1.0
    prior = (popularity / popularity.sum())[items[~is_learnt]]
    pairs = values * item_count + items
    known, counts = np.unique(pairs[is_learnt], return_counts=True)
    places = np.searchsorted(known, pairs[~is_learnt]).clip(max=len(known) - 1)
    of_pair = np.where(known[places] == pairs[~is_learnt], counts[places], 0)
    of_value = np.bincount(values[is_learnt], minlength=values.max() + 1)[values[~is_learnt]]
    posterior = (of_pair + prior) / (of_value + 1.0)
    return float(-np.log2(posterior).mean()), float(-np.log2(prior).mean())
