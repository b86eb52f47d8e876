import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.support.places import ROOT
from turret.tower.kernels.compiled import compiled, compiled_sum, prefetch

KERNELS = ROOT / "tower" / "kernels"
WHERE = "import turret.tower.kernels.compiled as c; print(c.FOLDER)"


@compiled
def read_ahead(values: np.ndarray, row: int) -> float:
    prefetch(values, row, 64)
    return float(values[row, 0])


@compiled_sum
def total(values: np.ndarray) -> float:
    added = 0.0
    for value in values:
        added += value
    return added


def test_compiled_functions_do_as_they_say() -> None:
    """Asking for memory changes nothing, and a reordered sum is the sum to rounding."""
    values = np.random.default_rng(0).standard_normal((5, 3))
    assert read_ahead(values, 3) == values[3, 0]
    assert abs(total(values.ravel()) - values.sum()) < 1e-12


def test_infinity_and_nan_keep_their_meaning_in_reordered_sums() -> None:
    """A sum in which one is stays so: bad vectors are not lost."""
    assert np.isnan(total(np.array([1.0, np.nan])))
    assert np.isinf(total(np.array([1.0, np.inf])))


def test_changed_modules_do_not_meet_code_compiled_from_others(tmp_path: Path) -> None:
    """A module that compiled functions call has changed: all of them are compiled anew."""
    kernels = tmp_path / "turret" / "tower" / "kernels"
    kernels.mkdir(parents=True)
    for package in (kernels, *kernels.parents[:2]):
        (package / "__init__.py").touch()
    for name in ("compiled.py", "counter_random.py"):
        copy = Path(shutil.copy(KERNELS / name, kernels))
    folders = []
    for _ in range(2):
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "kept")}
        done = subprocess.run(
            [sys.executable, "-P", "-c", WHERE],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            check=True,
        )
        folders.append(done.stdout.decode().strip())
        copy.write_text("# compiled differently\n")
    assert folders[0] != folders[1]
    assert all(folder.startswith(str(tmp_path / "kept")) for folder in folders)
