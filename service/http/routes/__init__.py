"""The calls of the API, and the page."""

__all__ = ["dependencies", "histories", "items", "page", "probes", "recommend", "versions"]
