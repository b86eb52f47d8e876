"""`turret report run` and `turret report compare`: pages about one run or several."""

__all__ = ["pages"]
