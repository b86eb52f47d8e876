"""A training by several processes: losses, split tables, checkpoints and validation."""

__all__ = ["memory", "setup", "split_validation"]
