"""Several runs beside each other, and the runs of several seeds as one."""

__all__ = ["compare"]
