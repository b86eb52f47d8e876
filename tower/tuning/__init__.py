"""The choice of an index: candidates, measured recall and search effort."""

__all__ = ["choice", "recall", "search_params"]
