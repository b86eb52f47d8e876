"""The text of `turret data describe`."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from turret.data.events.dropped_rows import bad_row_lines, headline_of
from turret.data.manifest import FeatureSummary, Manifest, Time
from turret.data.prepared import PARTS, PreparedData

_BAR = 40


def describe(folder: Path) -> str:
    """Describe prepared data: dropped rows, counts, period, split, features, histograms of events.

    Raises DataError when `folder` is not prepared data.
    """
    prepared = PreparedData.open(folder)
    lengths = np.diff(prepared.offsets)
    popularity = np.bincount(prepared.event_items, minlength=len(prepared.item_ids))
    sections = [
        _dropped_rows(prepared.manifest),
        _summary(prepared.manifest),
        [f"events a {unit(prepared.manifest)}:", *histogram(lengths, unit(prepared.manifest, many=True))],
        ["events an item:", *histogram(popularity, "items")],
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def unit(manifest: Manifest, many: bool = False) -> str:
    """What the events belong to: users, or queries."""
    is_queries = manifest.split.kind == "queries"
    return ("queries" if many else "query") if is_queries else ("users" if many else "user")


def histogram(counts: NDArray[np.int64], unit: str) -> list[str]:
    """Draw a histogram of `counts` in the bins 1, 2-3, 4-7, ...: one line per bin."""
    bins = np.bincount(np.log2(counts[counts > 0]).astype(np.int64))
    labels = ["1", *(f"{2**power:,}-{2 ** (power + 1) - 1:,}" for power in range(1, len(bins)))]
    width = max(map(len, labels), default=0)
    tallest = max(bins, default=1)
    return [
        f"  {label:>{width}}  {'#' * -(-_BAR * int(count) // int(tallest)):<{_BAR}}  {count:,} {unit}"
        for label, count in zip(labels, bins, strict=True)
    ]


def _summary(manifest: Manifest) -> list[str]:
    counts, split, users = manifest.counts, manifest.split, unit(manifest, many=True)
    density = counts.events / (counts.users * counts.items)
    parts = (f"{part} {split.events[part]:,} events of {split.users[part]:,} {users}" for part in PARTS)
    rows = {
        "events": _events(manifest),
        users: f"{counts.users:,} ({counts.events / counts.users:.1f} events each)",
        "items": f"{counts.items:,} ({counts.events / counts.items:.1f} events each)",
        "density": f"{density:.3%} (events / ({users} x items))",
        **({"repeats": _repeats(manifest), "order": _period(manifest.time)} if users == "users" else {}),
        "columns": ", ".join(f"{role} {name}" for role, name in manifest.columns if name is not None),
        "split": split.rule,
        "": "; ".join(parts),
        f"{unit(manifest)} features": _features(manifest.user_features),
        "item features": _features(manifest.item_features),
        "fingerprint": manifest.fingerprint,
    }
    return [f"{name:<14} {value}" for name, value in rows.items()]


def _events(manifest: Manifest) -> str:
    weighted = ", weighted" if manifest.has_weights else ""
    negatives = "" if manifest.negatives is None else f", with {manifest.negatives:,} given negatives"
    return f"{manifest.counts.events:,}{weighted}{negatives}"


def _repeats(manifest: Manifest) -> str:
    in_visit = manifest.visit_repeat_share
    visits = f", {in_visit:.1%} one of the same visit" if in_visit else ""
    return f"{manifest.repeat_share:.1%} of the events repeat an item of their user{visits}"


def _period(time: Time) -> str:
    if time.kind == "position":
        return "positions in the file"
    if time.kind == "number":
        return f"numbers from {time.first:,} to {time.last:,}"
    first, last = (np.datetime64(int(end), "ms").astype("datetime64[s]") for end in (time.first, time.last))
    return f"{first} to {last} (UTC)"


def _features(features: list[FeatureSummary]) -> str:
    return ", ".join(f"{feature.name} ({feature.kind}, {_size(feature)})" for feature in features) or "none"


def _size(feature: FeatureSummary) -> str:
    if feature.kind == "vector":
        return f"{feature.size:,} numbers"
    if feature.kind == "number":
        return "standardised"
    return f"{feature.size - 1:,} {'grams' if feature.kind == 'text' else 'values'}"


def _dropped_rows(manifest: Manifest) -> list[str]:
    lines = bad_row_lines(manifest.bad_rows)
    return [*(headline_of(manifest) or ["dropped:"] * bool(lines)), *lines]
