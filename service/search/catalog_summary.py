"""A summary of a catalog's fields, from which a client can offer filters."""

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from turret.service.search.field_roles import picture_of, title_of
from turret.tower.bundle.bundle import Bundle
from turret.tower.catalog.catalog import Catalog

MOST_VALUES = 100
# Values are listed if items share them: fewer distinct values than this share of the items.
_SHARED = 0.5
Summary = dict[str, Any]


class CatalogSummaries:
    """The summaries of the loaded versions, each made once."""

    def __init__(self) -> None:
        self._summaries: WeakKeyDictionary[Bundle, Summary] = WeakKeyDictionary()

    def known(self, bundle: Bundle) -> Summary | None:
        """Return the summary of a version if it was made before."""
        return self._summaries.get(bundle)

    def maker(self, bundle: Bundle) -> Callable[[], Summary]:
        """Return a function that makes the summary; it takes some milliseconds for 100,000 items."""

        def make() -> Summary:
            summary = self._summaries[bundle] = summarise(bundle.catalog)
            return summary

        return make


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
