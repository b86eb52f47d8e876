"""Metrics, logs and traces."""

__all__ = ["log_lines", "logs", "metrics", "spans", "table", "traces"]
