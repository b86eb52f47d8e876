"""The outcomes of the answers that a service has logged, counted in a process of their own."""

__all__ = ["counting", "process", "reports", "request"]
