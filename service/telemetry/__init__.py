"""Metrics, logs and traces."""

__all__ = ["log_lines", "logs", "metrics", "quantiles", "spans", "table", "traces"]
