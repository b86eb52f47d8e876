"""The live version: the record that all workers share, who follows it, activation, and the gate."""

__all__ = [
    "activation",
    "folder",
    "folder_commands",
    "follower",
    "gate",
    "gate_process",
    "gate_report",
    "holder",
    "memory",
    "record",
]
