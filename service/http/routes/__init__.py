"""The calls of the API, and the page."""

__all__ = [
    "admin",
    "catalog",
    "comparison",
    "events",
    "item_map",
    "items",
    "page",
    "path_ids",
    "probes",
    "recommend",
    "responses",
    "users",
    "versions",
]
