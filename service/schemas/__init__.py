"""The bodies of requests, their fields, cursors and times."""

__all__ = ["bodies", "cursor", "fields", "requests", "times"]
