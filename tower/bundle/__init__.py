"""A bundle: opened and checked, or published."""

__all__ = ["bundle", "golden", "publish"]
