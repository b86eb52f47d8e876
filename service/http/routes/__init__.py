"""The calls of the API."""

__all__ = ["admin", "comparison", "events", "items", "probes", "recommend", "responses", "users", "versions"]
