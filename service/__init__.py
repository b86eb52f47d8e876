"""A bundle behind HTTP."""

__all__ = ["calls", "cli", "components", "error_responses", "errors", "settings"]
