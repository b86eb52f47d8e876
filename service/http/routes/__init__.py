"""The calls of the API, and the page."""

__all__ = [
    "dependencies",
    "histories",
    "item_changes",
    "items",
    "page",
    "probes",
    "recommend",
    "rules",
    "versions",
]
