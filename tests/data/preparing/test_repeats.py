"""How many events and targets repeat an item of their user."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turret.data.events.event_arrays import Events
from turret.data.histories import histories
from turret.data.histories.splits import by_time
from turret.data.prepared import PreparedData
from turret.data.preparing.append import append
from turret.data.preparing.prepare import prepare
from turret.data.preparing.repeats import repeats_of
from turret.data.reading.schema import PrepareConfig


@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 9)), max_size=40),
    validation_from=st.integers(0, 7),
)
def test_repeats_are_those_of_a_naive_reading(rows: list[tuple[int, int, int]], validation_from: int) -> None:
    users, items, times = np.array(rows, dtype=np.int32).reshape(-1, 3).T
    events = Events(users=users, items=items, times=times).sorted()
    splits = by_time(events.times, events.offsets(4), validation_from, 7)
    used = {(user, item) for user, item, time in rows if time < 7}
    targets = {(user, item) for user, item, time in rows if time >= 7}
    assert repeats_of(events, splits) == (len(used | targets), len(targets), len(used & targets))


def test_the_manifest_has_the_share_also_after_new_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """User 1 comes back for a, and later also for b; small blocks change nothing."""
    monkeypatch.setattr(histories, "PIECE", 2)
    head = "user_id,item_id,timestamp\n"
    (tmp_path / "log.csv").write_text(
        f"{head}1,a,1700000001\n1,b,1700000002\n1,a,1700000003\n2,a,1700000001\n"
    )
    prepare(PrepareConfig(source=tmp_path / "log.csv"), tmp_path / "data")
    assert PreparedData.open(tmp_path / "data").manifest.repeat_share == pytest.approx(1 / 4)
    (tmp_path / "new.csv").write_text(f"{head}1,b,1700000009\n")
    append(tmp_path / "new.csv", tmp_path / "data")
    assert PreparedData.open(tmp_path / "data").manifest.repeat_share == pytest.approx(2 / 5)
