"""Settings of an experiment, and the rules for combining them."""

__all__ = ["compatibility", "experiment", "metric"]
