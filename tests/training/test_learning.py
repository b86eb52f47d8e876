"""Does training learn what is there, and nothing where nothing is?"""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from data.prepare import prepare
from data.schema import PrepareConfig
from data.sequences import PreparedData
from data.synthetic import SyntheticConfig, synthesise
from training.config import EvaluationConfig, load_experiment
from training.evaluation import evaluate
from training.run import Run
from training.trainer import train

SHOP = SyntheticConfig(users=1200, items=600, events_per_user=30)


def hit_rates(folder: Path, events: pl.DataFrame) -> tuple[float, float]:
    """HR@20 on the test part of towers trained on `events`, and of popularity."""
    folder.mkdir()
    events.write_csv(folder / "events.csv")
    prepare(PrepareConfig(source=folder / "events.csv"), folder / "prepared")
    data = PreparedData.open(folder / "prepared")
    overrides = ["training.epochs=8", "training.batch_size=1024", "training.learning_rate=5e-3"]
    experiment = load_experiment("youtubednn", overrides)
    run = Run(folder / "run", experiment, data.folder, data.fingerprint)
    train(run, data, resume=False, report=lambda _: None)
    report = evaluate(run.open_model(data), data, "test", EvaluationConfig(k=(20,), bootstrap=100))
    return report["towers"]["hr@20"]["mean"], report["popularity"]["hr@20"]["mean"]


@pytest.mark.slow
def test_order_is_learnt_where_there_is_one_and_not_where_it_was_shuffled(tmp_path: Path) -> None:
    """Towers beat popularity clearly on the shop, and not on the same events dealt out in shuffled order."""
    synthesise(SHOP, tmp_path / "raw")
    events = pl.read_csv(tmp_path / "raw" / "events.csv")
    dealt = np.random.default_rng(0).permutation(len(events))
    shuffled = events.with_columns(events["item_id"][dealt])
    towers, popularity = hit_rates(tmp_path / "ordered", events)
    assert towers > 2 * popularity
    towers, popularity = hit_rates(tmp_path / "shuffled", shuffled)
    # Two rates of 1,200 users differ by chance by about .01; popularity is all there is to learn.
    assert towers < popularity + 0.03
