"""Metrics, logs, traces, recall and drift of a worker."""

__all__ = ["answer_record", "drift", "logs", "metrics", "observation", "traces"]
