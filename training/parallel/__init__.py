"""A training by several processes: their parts of the loss, and the check that all train the same run."""

__all__ = ["loss", "same_run"]
