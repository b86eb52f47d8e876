from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import our_training
from benchmarks.alternation import Side
from data.prepare import prepare
from data.schema import PrepareConfig
from data.sequences import PreparedData
from data.synthetic import SyntheticConfig, synthesise


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """60 users of about 15 events, the last one out."""
    folder = tmp_path_factory.mktemp("shop")
    config = SyntheticConfig(users=60, items=160, events_per_user=15, shortest_history=3, longest_history=40)
    synthesise(config, folder / "raw")
    prepare(PrepareConfig(source=folder / "raw"), folder / "prepared")
    return PreparedData.open(folder / "prepared")


@pytest.mark.parametrize(
    "side", [our_training.pooled, our_training.transformer_sampled, our_training.transformer_full]
)
def test_our_side_trains_epoch_after_epoch(
    side: Callable[[PreparedData, Path], Side], data: PreparedData, tmp_path: Path
) -> None:
    """One batch holds all examples here, so that three steps are three epochs of each user's training events
    but the first, which nothing comes before."""
    per_user = data.splits[:, 0] - data.offsets[:-1]
    examples, seconds = side(data, tmp_path)(3)
    assert examples == 3 * int((per_user - 1).clip(0).sum())
    assert seconds > 0
