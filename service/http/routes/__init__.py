"""The calls of the API, and the page."""

__all__ = [
    "admin",
    "catalog",
    "events",
    "item_map",
    "items",
    "page",
    "probes",
    "recommend",
    "responses",
    "users",
    "versions",
]
