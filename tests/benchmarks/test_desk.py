from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from benchmarks.desk import Desk, moment
from benchmarks.next_items import HOUR, by_bundle

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


def test_a_model_goes_on_with_what_is_new(log: pl.DataFrame, tmp_path: Path) -> None:
    """The item of the last hours is unknown to the first bundle, and can be had from the next."""
    desk = Desk(log, tmp_path, "youtubednn")
    first = desk.retrained(BEGIN, BEGIN + 18 * HOUR, "first", SETTINGS)
    origin, since = first.folder, BEGIN + 18 * HOUR
    second = desk.updated(origin, BEGIN, since, BEGIN + 20 * HOUR, "second", SETTINGS[:1])
    assert 99 not in by_bundle(first.folder)([[0]])[0]
    assert 99 in by_bundle(second.folder)([[0]])[0]
    assert first.folder != second.folder
    assert second.seconds > 0.0
