"""Several runs beside each other: paired differences, settings, cost and size."""

__all__ = ["commands", "compare"]
