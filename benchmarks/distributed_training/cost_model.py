"""What a step would take on a real network, computed from the bytes that two processes have sent."""

from collections.abc import Mapping
from dataclasses import dataclass

# A data centre's usual network, and the way of a small message through it and the libraries.
GBIT_PER_S, SECONDS_A_MESSAGE = 25.0, 50e-6
# Exchanges of a step that wait for each other: figures, counts, candidates, their gradients, rows.
MESSAGES = 8


@dataclass(frozen=True)
class Cost:
    """A step of `workers` of which each has as many examples as one of the two that were measured."""

    workers: int
    sent_mb: dict[str, float]
    seconds: float
    share_computing: float


def cost(sent: Mapping[str, float], step_seconds: float, workers: int) -> Cost:
    """The cost of a step at `workers`, if nothing is sent while anything is computed.

    Args:
        sent: bytes that each of two processes sends a step, by kind.
        step_seconds: what the computation of a worker's examples takes.
        workers: W.

    A sum sends 2 (W - 1) / W of its size, half of which two processes send; a worker's candidates go to
    W - 1 others; of the table rows that a worker asks for, (W - 1) / W are elsewhere.
    """
    factors = {
        "gradients": 2 * (workers - 1) / workers,
        "figures": 2 * (workers - 1) / workers,
        "candidates": float(workers - 1),
        "table rows": 2 * (workers - 1) / workers,
    }
    bytes_sent = {kind: size * factors[kind] for kind, size in sent.items()}
    network = 8 * sum(bytes_sent.values()) / (GBIT_PER_S * 1e9) + MESSAGES * SECONDS_A_MESSAGE
    return Cost(
        workers=workers,
        sent_mb={kind: size / 1e6 for kind, size in bytes_sent.items()},
        seconds=step_seconds + network,
        share_computing=step_seconds / (step_seconds + network),
    )
