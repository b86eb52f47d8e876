"""Event logs in, arrays out: the only package that reads raw data."""

__all__ = [
    "answers",
    "cli",
    "configuration",
    "errors",
    "extras",
    "features",
    "files",
    "kinds",
    "manifest",
    "moments",
    "object_stores",
    "prepared",
    "progress",
    "ranges",
    "rows",
    "text",
    "vocabulary",
]
