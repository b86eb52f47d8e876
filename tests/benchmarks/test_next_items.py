import math
from pathlib import Path

import polars as pl
import pytest

from benchmarks.next_items import HOUR, Questions, by_bundle, gains, questions, read_clicks


def clicks(*rows: tuple[int, int, float]) -> pl.DataFrame:
    """Clicks of (session, item, hour)."""
    columns = {"session_id": pl.Int64, "item_id": pl.Int32, "timestamp_ms": pl.Int64}
    frame = [(session, item, int(hour * HOUR)) for session, item, hour in rows]
    return pl.DataFrame(frame, schema=columns, orient="row")


LOG = clicks(
    (1, 10, 0.1), (1, 11, 0.2), (1, 12, 1.1),
    (2, 11, 0.3), (2, 10, 2.5),
    (3, 13, 1.2), (3, 14, 1.3), (3, 10, 1.4),
)  # fmt: skip


def test_every_click_but_the_first_of_a_session_is_asked_for_in_its_hour() -> None:
    """With what the session has clicked before, in this hour or an earlier one."""
    asked = questions(LOG, HOUR, 2 * HOUR)
    pairs = list(zip(asked.histories, asked.targets, strict=True))
    assert pairs == [([10, 11], 12), ([13], 14), ([13, 14], 10)]
    assert asked.known == [False, False, True]
    assert asked.sessions == [1, 3, 3]
    assert questions(LOG, 0, HOUR).histories == [[10]]
    assert questions(LOG, 3 * HOUR, 4 * HOUR).targets == []


def test_what_is_known_of_a_session_is_what_its_first_click_says() -> None:
    log = LOG.with_columns(device=pl.Series(["a", "b", "b", "c", "d", "e", "e", "f"]))
    asked = questions(log, HOUR, 2 * HOUR, features=["device"])
    assert asked.features == [{"device": "a"}, {"device": "e"}, {"device": "e"}]


def test_the_order_of_the_file_does_not_matter(tmp_path: Path) -> None:
    LOG.reverse().write_parquet(tmp_path / "clicks.parquet")
    assert read_clicks(tmp_path / "clicks.parquet").equals(LOG)


def test_a_repeat_is_only_asked_for_where_it_can_be_right() -> None:
    """Of 10, 11, 10, 12 in an hour and 11, 13 in the next, the second 10 and 11 are repeats."""
    log = clicks(
        (1, 10, 0.1), (1, 11, 0.2), (1, 10, 0.3), (1, 12, 0.4), (1, 11, 1.1), (1, 13, 1.2)
    )  # fmt: skip
    assert questions(log, 0, HOUR, repeats=False).targets == [11, 12]
    later = questions(log, HOUR, 2 * HOUR, repeats=False)
    assert (later.targets, later.histories) == ([13], [[10, 11, 10, 12, 11]])


def test_gains_are_those_of_one_right_answer() -> None:
    asked = Questions([[], [], []], [5, 6, 7], [True] * 3, [1, 2, 3], [{}] * 3)
    found = gains(lambda _: [[5, 6, 7], [5, 6, 7], [1, 2]], asked)
    assert found["recall@20"] == [1.0, 1.0, 0.0]
    assert found["ndcg@20"] == pytest.approx([1.0, 1.0 / math.log2(3), 0.0])


def test_a_bundle_answers_as_the_service_does(bundles: Path) -> None:
    """Unknown ids are left out; where none is known, the answer is by popularity, which falls with the id."""
    towers, popularity = by_bundle(bundles / "v1")([[101, 7, 102], [7]])
    assert popularity == list(range(100, 120))
    assert len(towers) == 20
    assert not {101, 102} & set(towers)
    assert by_bundle(bundles / "v1")([[101, 102]]) == [towers]
