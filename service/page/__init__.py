"""The page that the service shows in a browser: its files, and what it may load."""

__all__ = ["page_settings"]
