"""Towers run by ONNX Runtime: checks of a graph, sessions, encoders."""

__all__ = ["encoder", "feature_inputs"]
