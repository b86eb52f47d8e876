"""`turret report run` and `turret report compare`: what one run or several are, as a page."""

__all__ = ["pages"]
