"""The calls of the API, and the page."""

__all__ = [
    "admin",
    "comparison",
    "histories",
    "items",
    "page",
    "parameters",
    "probes",
    "recommend",
    "responses",
    "versions",
]
