"""A bundle behind HTTP."""

__all__ = [
    "calls",
    "cli",
    "client",
    "components",
    "error_responses",
    "errors",
    "settings",
]
