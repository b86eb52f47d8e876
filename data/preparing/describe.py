"""The text of `turret data describe`."""

from itertools import zip_longest
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from turret.data.events.dropped_rows import bad_row_lines, headline_of
from turret.data.features.feature import KINDS
from turret.data.kinds import read_kinds, text_of_kind
from turret.data.manifest import FeatureSummary, Time
from turret.data.prepared import PARTS, Part, PreparedData
from turret.data.text import text_table


def describe(folder: Path) -> str:
    """Describe prepared data: dropped rows, counts, period, split, features, and the spread of events.

    Raises DataError when `folder` is not prepared data.
    """
    data = PreparedData.open(folder)
    manifest, users = data.manifest, "queries" if data.has_queries else "users"
    counts, split = manifest.counts, manifest.split
    dropped = bad_row_lines(manifest.bad_rows)
    dropped = [*(headline_of(manifest) or ["dropped:"] * bool(dropped)), *dropped]
    negatives = "" if manifest.negatives is None else f", with {manifest.negatives:,} given negatives"
    visits = manifest.visit_repeat_share
    repeats = f"{manifest.repeat_share:.1%} of the training events repeat an item of their user"
    repeats += f", {visits:.1%} one of the same visit" if visits else ""
    rows = [
        ("events", f"{counts.events:,}{', weighted' if manifest.has_weights else ''}{negatives}"),
        (users, f"{counts.users:,} ({counts.events / counts.users:.1f} events each)"),
        ("items", f"{counts.items:,} ({counts.events / counts.items:.1f} events each)"),
        ("density", f"{counts.events / (counts.users * counts.items):.3%} (events / ({users} x items))"),
        *([("kinds", _kinds(data))] if manifest.kinds else []),
        *([] if data.has_queries else [("repeats", repeats), ("order", _period(manifest.time))]),
        ("columns", ", ".join(f"{role} {name}" for role, name in manifest.columns if name is not None)),
        ("split", split.rule),
        *((part, f"{_size(data, part)} of {split.users[part]:,} {users}") for part in PARTS),
        ("user features", _features(manifest.user_features)),
        ("item features", _features(manifest.item_features)),
        *([("context", _features(manifest.context_features))] if manifest.context_features else []),
        ("fingerprint", manifest.fingerprint),
    ]
    spread = zip_longest(_bins(np.diff(data.offsets)), _bins(np.bincount(data.event_items)), fillvalue=0)
    bins = [
        (f"{2**power:,} - {2 ** (power + 1) - 1:,}" if power else "1", *map("{:,}".format, pair))
        for power, pair in enumerate(spread)
    ]
    tables = [text_table(("data", ""), rows, right=False), text_table(("with events", users, "items"), bins)]
    return "\n\n".join(["\n".join(dropped)] * bool(dropped) + tables)


def _bins(counts: NDArray[np.int64]) -> list[int]:
    """Return how many of `counts` are in the bins 1, 2-3, 4-7, ..."""
    bins: list[int] = np.bincount(np.log2(counts[counts > 0]).astype(np.int64)).tolist()
    return bins


def _size(data: PreparedData, part: Part) -> str:
    split = data.manifest.split
    events = f"{split.events[part]:,} events"
    return events if data.kinds is None else f"{events}, {split.targets[part]:,} of them targets,"


def _kinds(data: PreparedData) -> str:
    """Return a line for each kind: the number of its events, and their meaning."""
    assert data.kinds is not None
    names = read_kinds(data.manifest.kinds)
    counts = dict(zip(names, np.bincount(data.kinds, minlength=len(names)).tolist(), strict=True))
    return "\n".join(
        f"{name}: {f'{counts[name]:,} events, ' if name in counts else ''}{text_of_kind(kind)}"
        for name, kind in data.manifest.kinds.items()
    )


def _period(time: Time) -> str:
    if time.kind == "position":
        return "positions in the file"
    if time.kind == "number":
        return f"numbers from {time.first:,} to {time.last:,}"
    first, last = (np.datetime64(int(end), "ms").astype("datetime64[s]") for end in (time.first, time.last))
    return f"{first} to {last} (UTC)"


def _features(features: list[FeatureSummary]) -> str:
    return (
        "\n".join(f"{feature.name} ({feature.kind}, {_counted(feature)})" for feature in features) or "none"
    )


def _counted(feature: FeatureSummary) -> str:
    kind = KINDS[feature.kind]
    if kind.form == "number":
        return "standardised"
    return f"{feature.size - (kind.form != 'vector'):,} {kind.noun}"  # without the code of no value
