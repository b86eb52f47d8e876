"""A bundle behind HTTP."""

__all__ = [
    "bounded_process",
    "calls",
    "catalog_search",
    "cli",
    "components",
    "error_responses",
    "errors",
    "request_record",
    "settings",
]
