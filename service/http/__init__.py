"""The application: routes, middleware and documents."""

__all__ = ["app", "documents"]
