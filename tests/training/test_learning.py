"""Does training learn what is there, and nothing where nothing is?"""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.data.synthetic.synthesis import SyntheticConfig, synthesise
from turret.training.config.experiment import EvaluationConfig, load_experiment
from turret.training.evaluation.evaluation import evaluate
from turret.training.run import Run
from turret.training.trainer import train

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


@pytest.mark.nightly
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


def write_by_the_clock(path: Path) -> None:
    """Users take one of five items: by whether it is morning or evening, and after a long or a short gap."""
    random = np.random.default_rng(4)
    rows = ["user,item,timestamp"]
    for user in range(300):
        last = 0
        for day in np.cumsum(random.choice([1, 8], 20)).tolist():
            is_evening, is_long = int(random.integers(2)), int(day - last > 4)
            at = 1_600_041_600 + 86_400 * day + 3600 * (int(random.integers(6)) + 12 * is_evening)
            rows.append(f"{user},{10 * is_long + 5 * is_evening + int(random.integers(5))},{at}")
            last = day
    path.write_text("\n".join(rows) + "\n")


def test_times_are_learnt_by_the_tower_that_reads_them(tmp_path: Path) -> None:
    """Four groups of five items are told apart by gap and clock alone; the order of items says nothing."""
    write_by_the_clock(tmp_path / "events.csv")
    prepare(PrepareConfig(source=tmp_path / "events.csv"), tmp_path / "prepared")
    data = PreparedData.open(tmp_path / "prepared")
    found = []
    for times in ("true", "false"):
        overrides = [
            "tower.dimension=16",
            f'tower.user={{kind="transformer", blocks=1, history_length=20, times={times}}}',
            "training.epochs=8",
            "training.batch_size=256",
            "training.learning_rate=0.02",
        ]
        run = Run(tmp_path / times, load_experiment("transformer", overrides), data.folder, data.fingerprint)
        train(run, data, report=lambda _: None)
        config = EvaluationConfig(k=(5,), bootstrap=100, exclude_seen=False)
        found.append(evaluate(run.open_model(data), data, "test", config)["towers"]["hr@5"]["mean"])
    with_times, without = found
    assert with_times > 0.9
    # Five of twenty items by chance; three deviations of 300 users.
    assert without < 0.33
