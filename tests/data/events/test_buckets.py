from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turret.data.events.buckets import sorted_buckets
from turret.data.events.event_arrays import Events
from turret.data.events.event_files import EventFiles

COLUMNS = {"users": np.int32, "items": np.int32, "times": np.int64, "parts": np.int8}
ROWS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 2), st.integers(0, 4), st.integers(0, 5)),
    min_size=1,
    max_size=80,
)


@settings(deadline=None)
@given(rows=ROWS, piece=st.integers(1, 12), keeps_even=st.booleans())
def test_buckets_follow_each_other_in_order_whatever_their_size(
    rows: list[tuple[int, int, int, int]], piece: int, keeps_even: bool
) -> None:
    """A row is user, part, time and item. User u of the log is row 9 - u, and item i is row 5 - i."""
    users, parts, times, items = (np.array(column) for column in zip(*rows, strict=True))
    events = Events(users.astype(np.int32), items.astype(np.int32), times, None, parts.astype(np.int8))

    def change(events: Events) -> Events:
        return events.take(events.times % 2 == 0) if keeps_even else events

    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("turret.data.events.buckets.PIECE", piece)
        with EventFiles(Path(folder) / "log", COLUMNS) as log:
            log.write(events)
        of_users, of_items = (np.arange(last, -1, -1, dtype=np.int32) for last in (9, 5))
        found = list(sorted_buckets(log, of_users, of_items, Path(folder), change))
        assert list(Path(folder).iterdir()) == []
    expected = [(9 - user, part, time, 5 - item) for user, part, time, item in rows]
    expected.sort(key=lambda row: row[:3])
    told = [
        row
        for block in found
        for row in zip(
            block.users.tolist(),
            [] if block.parts is None else block.parts.tolist(),
            block.times.tolist(),
            block.items.tolist(),
            strict=True,
        )
    ]
    assert told == [row for row in expected if not keeps_even or row[2] % 2 == 0]
    of_blocks = [set(block.users.tolist()) for block in found]
    assert sum(map(len, of_blocks)) == len(set().union(*of_blocks))
    assert all(len(block) <= piece or len(users) == 1 for block, users in zip(found, of_blocks, strict=True))


def test_events_at_the_same_time_keep_the_order_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Enough of them to detect an unstable sort."""
    monkeypatch.setattr("turret.data.events.buckets.PIECE", 5000)
    count = 20_000
    users = np.random.default_rng(0).integers(0, 8, count).astype(np.int32)
    items = np.arange(count, dtype=np.int32)
    columns = {"users": np.int32, "items": np.int32, "times": np.int64}
    with EventFiles(tmp_path / "log", columns) as log:
        log.write(Events(users, items, np.zeros(count, dtype=np.int64)))
    of_users = np.arange(8, dtype=np.int32)
    found = [block.items for block in sorted_buckets(log, of_users, items, tmp_path, lambda events: events)]
    assert np.concatenate(found).tolist() == np.argsort(users, kind="stable").tolist()
