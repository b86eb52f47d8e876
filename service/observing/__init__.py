"""Metrics, logs, traces, recall and drift of a worker."""

__all__ = ["answer_record", "logs", "metrics", "observation"]
