"""Files that are fetched: public data sets, and files of the web."""

__all__ = ["datasets", "downloads"]
