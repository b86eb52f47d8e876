"""The application: routes, and layers around them."""

__all__ = ["app", "guard"]
