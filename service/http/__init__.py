"""The application: routes, layers around them, and documents."""

__all__ = ["app", "documents", "guard"]
