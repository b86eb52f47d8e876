"""The bodies of requests, their fields, cursors and times."""

__all__ = ["catalog", "cursor", "fields", "item_map", "items", "openapi_helpers", "requests", "times"]
