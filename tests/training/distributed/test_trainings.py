"""Whole trainings by two processes, and refusals."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.training.distributed.conftest import Answers
from tests.training.distributed.jobs import Scenario, trained
from tests.training.distributed.scenarios import REFUSED, TRAINED
from turret.data.prepared import PreparedData
from turret.training.distributed.world import World
from turret.training.optimisers import optimiser
from turret.training.parallel import tables

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def of_seeds(shop: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The best validation metric of five seeds, each trained in one process."""
    folder: Path = tmp_path_factory.mktemp("seeds")
    large, split_from = optimiser.LARGE, tables.SPLIT_FROM
    best = []
    for seed in range(5):
        settings = {**TRAINED, "training": {**TRAINED["training"], "seed": seed}}
        validated = trained(World(), shop.folder, folder / str(seed), Scenario(settings))
        best.append(max(value for _, value in validated))
    optimiser.LARGE, tables.SPLIT_FROM = large, split_from
    return best


@pytest.mark.parametrize("name", ["trained", "trained split"])
def test_two_processes_end_within_the_noise_of_seeds(
    answers: Answers, of_seeds: list[float], name: str
) -> None:
    """They draw other candidates than one process, so the figure is another one."""
    first, second = answers[name, 2]
    assert first == second
    best = max(value for _, value in first)
    mean, deviation = np.mean(of_seeds), np.std(of_seeds, ddof=1)
    assert abs(best - mean) < 4 * deviation
    assert first[0][1] < 0.8 * best


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("loss", r"objective\.loss: .* is no mean over single examples, so 2 processes"),
        ("sampler", r"objective\.sampler: AdaptiveNgramSampler learns from the examples"),
        ("chunks", r"training\.chunk_size = 64: the tables of 3 rows or more are split"),
    ],
)
def test_what_processes_can_not_share_is_refused(answers: Answers, name: str, sentence: str) -> None:
    assert set(REFUSED) == {"loss", "sampler", "chunks"}
    for refusal in answers[name, 2]:
        assert re.match(sentence, refusal), refusal
