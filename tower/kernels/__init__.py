"""Compiled numeric kernels (numba) and the threads that run them."""

__all__ = ["compiled", "elementwise"]
