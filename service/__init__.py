"""A bundle behind HTTP."""

__all__ = [
    "background_tasks",
    "calls",
    "child_processes",
    "cli",
    "components",
    "error_responses",
    "errors",
    "latency",
    "security_headers",
    "settings",
    "shown",
    "thread_priority",
    "thresholds",
    "worker_context",
]
