"""From a trained run to a bundle."""

__all__ = ["export", "export_warnings", "tower_check"]
