"""Several replicas of a service on one store: they agree on one live version."""

__all__ = ["coordination", "follower", "local_state"]
