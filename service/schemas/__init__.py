"""The bodies of requests, their fields, cursors and times."""

__all__ = [
    "catalog",
    "comparison",
    "cursor",
    "faults",
    "fields",
    "item_map",
    "items",
    "openapi_helpers",
    "requests",
    "times",
]
