from argparse import Namespace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from benchmarks import validation_parts
from benchmarks.protocol import Options
from benchmarks.validation_parts import EARLIER, PARTS, RECIPES, SET, SHIPPED, of, rows
from turret.training.config.experiment import load_experiment


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_are_experiments(recipe: str) -> None:
    load_experiment(SET.experiment, RECIPES[recipe])


def test_the_figures_on_the_test_are_of_trainings_that_it_did_not_select() -> None:
    """But for those that say so."""
    for name, part in PARTS.items():
        assert (part.measured == "test") == (name == "none")
        assert set(part.recipes) == ({SHIPPED} if name == "test" else {SHIPPED, EARLIER})


@pytest.mark.nightly
def test_a_training_tells_its_part_and_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick run is an epoch of each; without a part that selects there is no best epoch."""
    random_rows = [(user, (user + 3 * place) % 40) for user in range(30) for place in range(22)]
    frame = pl.DataFrame(random_rows, schema=["user_id", "item_id"], orient="row")
    place = pl.int_range(pl.len()).over("user_id")
    (tmp_path / SET.name).mkdir()
    frame.filter(place < 20).write_parquet(tmp_path / SET.name / "train.parquet")
    frame.filter(place >= 20).write_parquet(tmp_path / SET.name / "test.parquet")
    few: dict[str, Any] = {name: part for name, part in PARTS.items() if name in ("random tenth", "none")}
    monkeypatch.setattr(validation_parts, "PARTS", few)
    options = Options(tmp_path, True, False, Namespace(seeds=[0, 1]))
    kept = [{"recipe": EARLIER, "part": "none", "seed": 0}]
    found = list(rows(options, kept))[-1]
    assert len(found) == 4
    assert len(of(found, EARLIER, "none")) == 1
    (selected,), (refitted,) = of(found, SHIPPED, "random tenth", 0), of(found, SHIPPED, "none")
    assert (selected["best_epoch"], refitted["best_epoch"]) == (1, None)
    assert all(0.0 <= row[name] <= 1.0 for row in (selected, refitted) for name in SET.metrics)
