"""Metrics, logs, traces, recall and drift of a worker."""

__all__ = ["logs", "metrics", "observation", "quality"]
