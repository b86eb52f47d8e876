"""Event logs in, arrays out: the only package that reads raw data."""

__all__ = [
    "cli",
    "cli_errors",
    "configuration",
    "entry_points",
    "errors",
    "extras",
    "features",
    "manifest",
    "moments",
    "prepared",
    "progress",
    "ranges",
    "text",
    "vocabulary",
]
