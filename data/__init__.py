"""Event logs in, arrays out: the only package that reads raw data."""

__all__ = [
    "cli",
    "cli_errors",
    "configuration",
    "errors",
    "extras",
    "features",
    "files",
    "manifest",
    "moments",
    "prepared",
    "progress",
    "ranges",
    "text",
    "vocabulary",
]
