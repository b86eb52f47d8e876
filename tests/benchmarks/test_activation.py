import numpy as np

from benchmarks.activation import counts, decision
from benchmarks.activation_page import activation_section
from turret.activation.held_out import HeldOut
from turret.activation.not_worse import Comparison

ROWS = np.arange(100)
USERS = HeldOut(ROWS, ROWS, ROWS + 1, "of the test part")


def compared(new: float) -> Comparison:
    values = np.full(100, 0.5)
    return Comparison.of(("a", "b"), "ndcg@10", 0.1, USERS, np.full(100, new), values)


def test_decisions_are_counted_at_each_margin() -> None:
    assert [decision(compared(new)) for new in (0.6, 0.46, 0.4)] == ["accepted", "accepted", "worse"]
    assert counts([compared(0.46)] * 2, 0.05) == {"accepted": 0, "worse": 2, "unclear": 0}


def test_every_margin_of_a_log_is_a_line() -> None:
    outcomes = {"accepted": 3, "worse": 1, "unclear": 2}
    log = {
        "users": 1234,
        "ndcg@10": {"seeds": [0.05, 0.06], "one epoch": 0.03},
        "half_width": 0.081,
        "seconds": 2.34,
        "equal": {"0.1": outcomes},
        "one epoch": {"0.1": outcomes},
    }
    machine = {"cores": 2, "date": "2026-11-22T10:00:00"}
    lines = activation_section({"seeds": 4, "logs": {"ml-100k": log}, "machine": machine}).splitlines()
    assert "| MovieLens 100K | 1,234 | another seed | 0.1 | 3 | 1 | 2 |" in lines
    assert "| MovieLens 100K | 1,234 | one epoch | 0.1 | 3 | 1 | 2 |" in lines
    assert "8% of it to either side; a comparison takes 2.3 s." in lines[-1]
