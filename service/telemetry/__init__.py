"""Metrics, logs and traces."""

__all__ = ["logs", "metrics", "traces"]
