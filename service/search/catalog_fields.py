"""The fields of a catalog for a page: kinds, frequent values, titles, pictures, and colours of the map."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.service.errors import InvalidFieldError, NotFoundError
from turret.tower.bundle.bundle import Bundle
from turret.tower.catalog.catalog import Catalog
from turret.tower.catalog.columns import Column, Interval, Mask, summary_of

MOST_VALUES = 100
# Values are listed if items share them: fewer distinct values than this share of the items.
_SHARED = 0.5
_NAMES = ("title", "name", "label", "headline")
_PICTURES = re.compile(r"image|img|picture|photo|poster|thumb|cover", re.IGNORECASE)
_PICTURE_FILES = re.compile(r"\.(avif|gif|jpe?g|png|svg|webp)([?#]|$)", re.IGNORECASE)
# The least share of distinct values in a field that names items.
_DISTINCT = 0.5
_SAMPLE = 20  # values
MOST_GROUPS = 10  # more colours can't be told apart
NO_GROUP = 255
_RANGES = 8
_ALL_VALUES = 1_000_000
Summary = dict[str, Any]


def summarise(catalog: Catalog) -> Summary:
    """Summarise the fields: kinds, frequent values, bounds, and the ones with titles and pictures."""
    return {
        "title": title_of(catalog),
        "picture": _picture_of(catalog),
        "fields": [_field(catalog, name) for name in catalog.kinds],
    }


def _field(catalog: Catalog, name: str) -> Summary:
    kind = catalog.kinds[name]
    summary = summary_of(catalog.column(name), MOST_VALUES)
    described: Summary = {"name": name, "kind": kind, "missing": len(catalog) - summary.present}
    if kind in ("number", "numbers"):
        described |= {"minimum": summary.low, "maximum": summary.high}
    if kind in ("text", "texts") and summary.distinct <= _SHARED * max(1, summary.present):
        described["values"] = [{"value": value, "items": count} for value, count in summary.frequent]
    return described


def title_of(catalog: Catalog) -> str | None:
    """Return the text field that names an item: one called so, else the one with the most distinct values."""
    texts = [
        name for name, kind in catalog.kinds.items() if kind == "text" and not _are_addresses(catalog, name)
    ]
    known = {name.lower(): name for name in texts}
    for name in _NAMES:
        if name in known:
            return known[name]
    summaries = {name: summary_of(catalog.column(name), 0) for name in texts}
    shares = {name: summary.distinct / max(1, summary.present) for name, summary in summaries.items()}
    best = max(shares, key=lambda name: shares[name], default=None)
    return best if best is not None and shares[best] > _DISTINCT else None


def _picture_of(catalog: Catalog) -> str | None:
    """The text field that holds addresses of pictures, if there is one."""
    for name, kind in catalog.kinds.items():
        if kind != "text" or not _are_addresses(catalog, name):
            continue
        if _PICTURES.search(name) or all(_PICTURE_FILES.search(text) for text in _sample(catalog, name)):
            return name
    return None


def _are_addresses(catalog: Catalog, name: str) -> bool:
    sample = _sample(catalog, name)
    return bool(sample) and all(text.startswith(("https://", "http://")) for text in sample)


def _sample(catalog: Catalog, name: str) -> Sequence[str]:
    return [str(value) for value, _ in summary_of(catalog.column(name), _SAMPLE).frequent]


def map_of(bundle: Bundle) -> NDArray[np.uint16]:
    """Open the map of a version. Raises NotFoundError if it has none, BundleError if it is damaged."""
    found = bundle.item_map()
    if found is None:
        version = bundle.manifest.version
        message = f"version {version} has no map of its items; export the run again with `turret export`"
        raise NotFoundError("version", version, message)
    return found


def colouring(catalog: Catalog, name: str) -> tuple[list[dict[str, Any]], NDArray[np.uint8]]:
    """Group the rows by a field: by its most frequent texts, by ranges of its numbers, or by true and false.

    Return the label of each group and the number of its items, and the number of the group of each row [N];
    NO_GROUP for a row without a value. A row with several values belongs to the most frequent one. Raises
    InvalidFieldError.
    """
    fields = [field for field, kind in catalog.kinds.items() if kind not in ("mixed", "none")]
    if name not in fields:
        known = (
            f"the map can be coloured by {', '.join(fields)}" if fields else "items have no field to colour"
        )
        raise InvalidFieldError("field", name, known)
    kind, column = catalog.kinds[name], catalog.column(name)
    if kind in ("text", "texts"):
        groups = _by_value(column)
    elif kind == "boolean":
        groups = [("true", column.among([True])), ("false", column.among([False]))]
    else:
        groups = _by_range(column)
    codes = np.full(len(catalog), NO_GROUP, dtype=np.uint8)
    for number in reversed(range(len(groups))):  # so that the first one of several stays
        codes[groups[number][1]] = number
    sizes = np.bincount(codes, minlength=NO_GROUP + 1).tolist()
    return [{"label": label, "items": sizes[number]} for number, (label, _) in enumerate(groups)], codes


def _by_value(column: Column) -> list[tuple[str, Mask]]:
    summary = summary_of(column, MOST_GROUPS)
    has_others = summary.distinct > MOST_GROUPS
    values = [value for value, _ in summary.frequent][: MOST_GROUPS - has_others]
    groups = [(str(value), column.among([value])) for value in values]
    return [*groups, ("other", column.present())] if has_others else groups


def _by_range(column: Column) -> list[tuple[str, Mask]]:
    """Few numbers each, more by ranges with about as many rows each."""
    values, counts = zip(*sorted(summary_of(column, _ALL_VALUES).frequent), strict=True)
    if len(values) <= _RANGES:
        return [(f"{value:g}", column.among([value])) for value in values]
    shares = np.linspace(0, 1, _RANGES + 1)
    bounds = np.unique(np.quantile(np.repeat(values, counts), shares, method="inverted_cdf")).tolist()
    groups = []
    for low, high in pairwise(bounds):
        within = column.within(Interval(low, high, high_open=high < bounds[-1]))
        groups.append((f"{low:g} to {high:g}", within))
    return groups
