"""The bodies of requests, and their fields."""

__all__ = ["bodies", "fields", "requests", "version_requests"]
