"""Layers that several towers share."""

__all__ = [
    "attention",
    "feature_layers",
    "gather",
    "linear",
    "packed",
    "segments",
    "tables",
    "windows",
]
