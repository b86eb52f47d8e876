"""From a trained run to a bundle."""

__all__ = ["export", "onnx_form"]
