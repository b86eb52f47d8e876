"""A training by several processes: losses, split tables, checkpoints and validation."""

__all__ = ["memory", "same_run", "setup", "split_validation"]
