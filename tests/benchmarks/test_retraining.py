from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from benchmarks.next_items import HOUR, by_bundle
from benchmarks.retraining import Retrainer, moment
from turret.data.prepared import PreparedData

BEGIN = int(datetime(2024, 5, 1, 3, tzinfo=UTC).timestamp() * 1000)
SETTINGS = ("training.epochs=1", "tower.dimension=8", "tower.user.hidden=[8]", "training.batch_size=64")


def test_a_moment_is_written_as_settings_have_it() -> None:
    assert moment(BEGIN) == "2024-05-01T03:00:00"


@pytest.fixture
def log() -> pl.DataFrame:
    """Sixty sessions of four clicks, three an hour; in the last two hours item 99 takes part."""
    rows = []
    for session in range(60):
        items = [session % 7, 7 + session % 5, 99 if session >= 54 else 12, 20 + session % 3]
        begin = BEGIN + session // 3 * HOUR
        rows += [(session, item, begin + place * 1000) for place, item in enumerate(items)]
    return pl.DataFrame(rows, schema=["session_id", "item_id", "timestamp_ms"], orient="row")


def test_a_click_counts_half_as_much_as_one_a_half_life_younger(log: pl.DataFrame, tmp_path: Path) -> None:
    """The weights of the prepared events double every two hours, and never vanish."""
    retrainer = Retrainer(log, tmp_path, "youtubednn", half_life=2 * HOUR)
    data = PreparedData.open(retrainer.prepared(BEGIN, BEGIN + 20 * HOUR))
    assert data.weights is not None
    first = data.weights[data.offsets[:-1]]
    weights = dict(zip(data.users.ids(range(60)), first, strict=True))
    assert weights[59] / weights[53] == pytest.approx(2.0)
    assert weights[0] == pytest.approx(1e-3)


@pytest.mark.nightly
def test_what_a_session_begins_with_is_a_feature_of_it(log: pl.DataFrame, tmp_path: Path) -> None:
    """Sessions on x click 40 where those on y click 41: so it is for the model, also after an update."""
    odd = pl.col("session_id") % 2
    item = pl.when(pl.col("item_id") == 12).then(40 + odd).otherwise("item_id")
    device = pl.when(odd == 0).then(pl.lit("x")).otherwise(pl.lit("y"))
    retrainer = Retrainer(
        log.with_columns(item_id=item, device=device), tmp_path, "youtubednn", features=("device",)
    )
    more = ['tower.user.features="all"', "training.epochs=15", "training.learning_rate=2e-2"]
    first = retrainer.retrained(BEGIN, BEGIN + 18 * HOUR, "first", [*SETTINGS, *more])
    since, until = BEGIN + 18 * HOUR, BEGIN + 20 * HOUR
    second = retrainer.updated(first.folder, BEGIN, since, until, "second", SETTINGS[:1])
    for made in (first, second):
        x, y = by_bundle(made.folder, [{"device": "x"}, {"device": "y"}])([[0, 7], [0, 7]])
        assert x.index(40) < x.index(41)
        assert y.index(41) < y.index(40)


@pytest.mark.nightly
def test_a_model_goes_on_with_what_is_new(log: pl.DataFrame, tmp_path: Path) -> None:
    """The item of the last hours is unknown to the first bundle, and can be had from the next."""
    retrainer = Retrainer(log, tmp_path, "youtubednn")
    first = retrainer.retrained(BEGIN, BEGIN + 18 * HOUR, "first", SETTINGS)
    origin, since = first.folder, BEGIN + 18 * HOUR
    second = retrainer.updated(origin, BEGIN, since, BEGIN + 20 * HOUR, "second", SETTINGS[:1])
    assert 99 not in by_bundle(first.folder)([[0]])[0]
    assert 99 in by_bundle(second.folder)([[0]])[0]
    assert first.folder != second.folder
    assert second.seconds > 0.0
