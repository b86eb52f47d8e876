"""Settings of an experiment, and its metric."""

__all__ = ["experiment", "metric"]
