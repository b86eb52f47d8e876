"""One step of the same batch by one, two and four processes."""

from typing import Any

import numpy as np
import pytest

from tests.training.distributed.jobs import Step, first_steps
from tests.training.distributed.processes import in_processes
from turret.data.prepared import PreparedData
from turret.training.distributed.world import World
from turret.training.optimisers import optimiser

POOLED = {"user": {"kind": "pooled", "dropout": 0.0}, "dimension": 16}
TRANSFORMER = {"user": {"kind": "transformer", "dropout": 0.0, "history_length": 20}, "dimension": 16}
ATTENTIVE = {"user": {"kind": "attentive", "dropout": 0.0}, "dimension": 16}
RECURRENT = {"user": {"kind": "recurrent", "dropout": 0.0}, "dimension": 16}
IN_BATCH = {"kind": "in_batch"}
FEATURES = {**POOLED, "item": {"features": "all"}}
MIXED = {"kind": "mixed", "parts": [{"kind": "cross_batch"}, {"kind": "in_batch"}]}
UNIQUE = {"kind": "in_batch", "unique": True, "frequencies": "streaming"}
CORRECTED = "sampled_softmax_corrected"


def settings(
    tower: dict[str, Any],
    loss: Any,
    sampler: Any = None,
    batch_size: int = 700,
    split_from: int = 10**6,
    lazy_from: int = 10**6,
    **objective: Any,
) -> dict[str, Any]:
    """An experiment whose candidates are no accident of a process: those of the batch, or all items."""
    experiment = {
        "tower": tower,
        "objective": {"loss": {"kind": loss}, "sampler": sampler, **objective},
        "training": {
            "batch_size": batch_size,
            "device": "cpu",
            "precision": "float32",
            "gradient_clip": 0.05,
        },
    }
    return {"experiment": experiment, "split_from": split_from, "lazy_from": lazy_from}


SCENARIOS = {
    "in-batch, pooled": settings(POOLED, CORRECTED, IN_BATCH),
    "in-batch, transformer": settings(TRANSFORMER, CORRECTED, IN_BATCH),
    "in-batch, attentive": settings(ATTENTIVE, "refined_logq", IN_BATCH),
    "in-batch, recurrent": settings(RECURRENT, "negative_sampling", IN_BATCH),
    "unique and streaming": settings(POOLED, CORRECTED, UNIQUE),
    "known items masked": settings(POOLED, CORRECTED, IN_BATCH, mask_known=True),
    "full softmax": settings(TRANSFORMER, "full_softmax"),
    "split tables": settings(FEATURES, CORRECTED, IN_BATCH, split_from=3),
    "split tables, updated by row": settings(TRANSFORMER, CORRECTED, IN_BATCH, split_from=3, lazy_from=100),
    "split tables, full softmax": settings(POOLED, "full_softmax", split_from=3),
    "split tables, cross-batch": settings(POOLED, CORRECTED, MIXED, split_from=3),
    "fewer spans than processes": settings(POOLED, CORRECTED, IN_BATCH, batch_size=2),
}


@pytest.fixture(scope="module")
def steps(shop: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Step]]]:
    """The first step of every scenario, by the number of processes and the rank."""
    folder = tmp_path_factory.mktemp("steps")
    arguments = (shop.folder, folder, SCENARIOS)
    large = optimiser.LARGE
    alone = [first_steps(World(), *arguments)]
    optimiser.LARGE = large
    return {1: alone, **{size: in_processes(size, first_steps, *arguments) for size in (2, 4)}}


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_processes_make_the_step_that_one_makes(
    steps: dict[int, list[dict[str, Step]]], scenario: str, size: int
) -> None:
    (alone,) = (one[scenario] for one in steps[1])
    for together in (one[scenario] for one in steps[size]):
        assert together.loss == pytest.approx(alone.loss, rel=1e-6)
        assert together.examples == alone.examples
        assert together.masked == alone.masked
        for name, gradient in alone.gradients.items():
            rows = slice(*together.rows.get(name, (None, None)))
            own = gradient[rows]
            np.testing.assert_allclose(together.gradients[name], own, rtol=0, atol=1e-6, err_msg=name)
            # Adam's first step is as long for the rounding of a gradient as for a gradient.
            clear = (np.abs(own) > 1e-6) | (own == 0)
            after, expected = together.weights[name][clear], alone.weights[name][rows][clear]
            np.testing.assert_allclose(after, expected, rtol=0, atol=1e-6, err_msg=name)
        for name, state in alone.state.items():
            np.testing.assert_array_equal(together.state[name], state, err_msg=name)
