"""A summary of the fields of a catalog: what a client needs for filters, titles and pictures."""

import re
from collections.abc import Sequence
from typing import Any

from turret.tower.catalog.catalog import Catalog
from turret.tower.catalog.columns import ColumnSummary

MOST_VALUES = 100
# Values are listed if items share them: fewer distinct values than this share of the items.
_SHARED = 0.5
_NAMES = ("title", "name", "label", "headline")
_PICTURES = re.compile(r"image|img|picture|photo|poster|thumb|cover", re.IGNORECASE)
_PICTURE_FILES = re.compile(r"\.(avif|gif|jpe?g|png|svg|webp)([?#]|$)", re.IGNORECASE)
# The least share of distinct values in a field that names items.
_DISTINCT = 0.5
_SAMPLE = 20  # values
Summary = dict[str, Any]


def summarise(catalog: Catalog) -> Summary:
    """Summarise the fields: kinds, frequent values, bounds, and the ones with titles and pictures."""
    return {
        "title": title_of(catalog),
        "picture": picture_of(catalog),
        "fields": [_field(catalog, name) for name in catalog.field_names],
    }


def _field(catalog: Catalog, name: str) -> Summary:
    kind = catalog.kinds[name]
    summary = catalog.column(name).summary(MOST_VALUES)
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
    shares = {name: _distinct_share(catalog.column(name).summary(0)) for name in texts}
    best = max(shares, key=lambda name: shares[name], default=None)
    return best if best is not None and shares[best] > _DISTINCT else None


def picture_of(catalog: Catalog) -> str | None:
    """Return the text field that holds addresses of pictures, if there is one."""
    for name, kind in catalog.kinds.items():
        if kind != "text" or not _are_addresses(catalog, name):
            continue
        if _PICTURES.search(name) or all(_PICTURE_FILES.search(text) for text in _sample(catalog, name)):
            return name
    return None


def _distinct_share(summary: ColumnSummary) -> float:
    return summary.distinct / summary.present if summary.present else 0.0


def _are_addresses(catalog: Catalog, name: str) -> bool:
    sample = _sample(catalog, name)
    return bool(sample) and all(text.startswith(("https://", "http://")) for text in sample)


def _sample(catalog: Catalog, name: str) -> Sequence[str]:
    values = catalog.column(name).summary(_SAMPLE).frequent
    return [str(value) for value, _ in values]
