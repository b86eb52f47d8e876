"""`turret report run` and `turret report compare`: the sections of a page about one run or several."""

__all__ = ["commands"]
