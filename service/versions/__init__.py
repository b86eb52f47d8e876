"""The live version: activation, gate, traffic split and the activation log."""

__all__ = [
    "activation",
    "activation_log",
    "activation_state",
    "checked_versions",
    "coordination",
    "engine_access",
    "gate",
    "gate_process",
    "loaded_model",
    "memory",
    "model_holder",
    "overlap",
    "shadow",
    "traffic_split",
]
