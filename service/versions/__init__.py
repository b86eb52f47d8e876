"""The live version: the record that all workers share, who follows it, activation, and the gate."""

__all__ = ["activation", "folder", "follower", "gate", "gate_process", "holder", "memory", "record"]
