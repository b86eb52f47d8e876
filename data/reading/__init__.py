"""Files of events, items and users of any supported format, as polars frames."""

__all__ = [
    "columns",
    "markup",
    "numbers",
    "open_source",
    "queries",
    "schema",
    "source_settings",
    "tables",
    "times",
]
