"""The bodies of requests, their fields, cursors and times."""

__all__ = ["comparison", "cursor", "fields", "items", "openapi_helpers", "requests", "times"]
