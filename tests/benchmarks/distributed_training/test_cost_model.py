import pytest

from benchmarks.distributed_training.cost_model import MESSAGES, SECONDS_A_MESSAGE, cost

SENT = {"gradients": 10e6, "candidates": 1e6, "table rows": 2e6, "figures": 0.0}


def test_two_workers_send_what_was_measured() -> None:
    two = cost(SENT, 0.1, 2)
    assert two.sent_mb == pytest.approx(
        {"gradients": 10.0, "candidates": 1.0, "table rows": 2.0, "figures": 0}
    )
    assert two.seconds == pytest.approx(0.1 + 8 * 13e6 / 25e9 + MESSAGES * SECONDS_A_MESSAGE)
    assert two.share_computing == pytest.approx(0.1 / two.seconds)


def test_candidates_grow_with_the_workers_and_the_rest_does_not() -> None:
    many = cost(SENT, 0.1, 64)
    assert many.sent_mb["candidates"] == pytest.approx(63.0)
    assert many.sent_mb["gradients"] == pytest.approx(20.0 * 63 / 64)
    assert many.sent_mb["table rows"] == pytest.approx(4.0 * 63 / 64)
