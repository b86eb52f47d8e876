import numpy as np

from benchmarks.activation import counts, decision
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
