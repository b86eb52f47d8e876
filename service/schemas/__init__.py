"""The bodies of requests, their fields, cursors and times."""

__all__ = ["cursor", "faults", "fields", "requests", "times"]
