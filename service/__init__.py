"""A bundle behind HTTP."""

__all__ = [
    "calls",
    "catalog_search",
    "cli",
    "components",
    "error_responses",
    "errors",
    "request_record",
    "settings",
]
