import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load

from tests.support.full_disk import small_disk, small_files
from tests.tower.small_towers import ITEMS, USERS, config, item_features, no_features
from turret.tower.towers.model import TwoTowers
from turret.training.errors import TrainingError
from turret.training.export import catalog_files
from turret.training.export.catalog_files import mapped_model, mapped_vectors

# More vectors than the disk has room for; no tower is needed.
WRITE = """
import sys, types, torch
from pathlib import Path
from turret.training.export import catalog_files
catalog_files._BLOCK = 1000
item = types.SimpleNamespace(item_count=8000)
model = types.SimpleNamespace(item=item, item_vectors=lambda rows: torch.ones(len(rows), 64))
try:
    catalog_files.mapped_vectors(model, Path(sys.argv[1]) / "item_vectors.npy")
except OSError as error:
    print(error.strerror)
"""


@pytest.fixture
def model() -> TwoTowers:
    torch.manual_seed(0)
    return TwoTowers(config(dropout=0.0), ITEMS, item_features(), no_features(USERS)).eval()


@pytest.mark.parametrize("block", [1, ITEMS - 1, ITEMS, ITEMS + 1])
def test_the_vectors_of_all_blocks_are_in_the_file(
    block: int, model: TwoTowers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_files, "_BLOCK", block)
    vectors = mapped_vectors(model, tmp_path / "item_vectors.npy")
    expected = model.catalog_vectors().detach().numpy()
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(np.load(tmp_path / "item_vectors.npy"), vectors)


def test_the_parameters_of_the_model_are_in_the_file(model: TwoTowers, tmp_path: Path) -> None:
    mapped = mapped_model(model, tmp_path / "model.safetensors")
    stored, expected = load(bytes(mapped)), model.state_dict()
    assert stored.keys() == expected.keys()
    assert all(torch.equal(stored[name], expected[name]) for name in expected)


@pytest.mark.nightly
def test_vectors_that_the_disk_can_not_take_do_not_end_the_process(tmp_path: Path) -> None:
    """A write to a mapped file would, by SIGBUS."""
    with small_disk(tmp_path / "disk") as disk:
        done = subprocess.run(
            [sys.executable, "-c", WRITE, str(disk)], capture_output=True, text=True, check=False
        )
    assert (done.returncode, done.stdout) == (0, "No space left on device\n"), done.stderr


def test_a_model_that_the_disk_can_not_take_is_a_sentence(model: TwoTowers, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with (
        small_files(100),
        pytest.raises(TrainingError, match=rf"^{path}: it can't be written .*make room"),
    ):
        mapped_model(model, path)
