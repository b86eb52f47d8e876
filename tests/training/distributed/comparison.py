"""The comparison of a step of several processes with that of one."""

import numpy as np
import pytest

from tests.training.distributed.jobs import Step

# Sums of float32 differ with their order.
ROUNDING = 1e-6


def check_equal(together: Step, alone: Step) -> None:
    """Both made the same step; `together` may hold a part of the rows."""
    assert together.loss == pytest.approx(alone.loss, rel=ROUNDING)
    assert (together.examples, together.masked) == (alone.examples, alone.masked)
    for name, gradient in alone.gradients.items():
        rows = slice(*together.rows.get(name, (None, None)))
        own = gradient[rows]
        np.testing.assert_allclose(together.gradients[name], own, rtol=0, atol=ROUNDING, err_msg=name)
        # Adam's first steps are as long for the rounding of a gradient as for a gradient.
        clear = (np.abs(own) > ROUNDING) | (own == 0)
        after, expected = together.weights[name][clear], alone.weights[name][rows][clear]
        np.testing.assert_allclose(after, expected, rtol=0, atol=ROUNDING, err_msg=name)
    for name, state in alone.state.items():
        np.testing.assert_allclose(together.state[name], state, rtol=0, atol=ROUNDING, err_msg=name)
