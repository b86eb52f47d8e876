"""Layers that several towers share."""

__all__ = ["attention", "feature_layers", "packed", "windows"]
