"""The page: its files, and what it may load."""

__all__ = ["assets", "page_settings"]
