"""A training by several processes: losses, split tables, checkpoints and validation."""

__all__ = ["setup", "split_validation"]
