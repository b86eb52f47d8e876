"""From a trained run to a bundle."""

__all__ = ["export", "export_warnings", "onnx_form"]
