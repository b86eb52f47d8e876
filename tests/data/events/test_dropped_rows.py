from pathlib import Path

import pytest

from turret.data.errors import BadRowsError
from turret.data.events.dropped_rows import describe_dropped, refuse_bad_rows
from turret.data.manifest import BadRows, Removed

BAD = [
    BadRows(kind="null user", count=1200, examples=[{"row": 5, "user_id": None, "item_id": "x"}]),
    BadRows(kind="null time", count=1, examples=[{"row": 9, "note": "x" * 500}]),
]


def test_bad_rows_are_refused_with_kinds_counts_examples_and_remedy() -> None:
    with pytest.raises(BadRowsError) as refusal:
        refuse_bad_rows(BAD, [Path("log.csv"), Path("items.csv")])
    assert str(refusal.value).splitlines() == [
        "1,201 rows of log.csv, items.csv are not valid:",
        "  null user: 1,200",
        "    row 5, user_id null, item_id x",
        "  null time: 1",
        f"    row 9, note {'x' * 60}...",
        "correct them, or drop them with --on-bad drop",
    ]
    refuse_bad_rows([], [])
    with pytest.raises(BadRowsError, match=r"rows of p0, p1, p2, p3 and 1,196 other files are not valid:"):
        refuse_bad_rows(BAD, [Path(f"p{number}") for number in range(1200)])


def test_times_that_can_not_be_read_name_the_option_that_reads_them() -> None:
    bad = [BadRows(kind="unreadable time", count=2, examples=[])]
    remedy = "give the format of dates with --time-format"
    with pytest.raises(BadRowsError, match=f"; {remedy}$"):
        refuse_bad_rows([*BAD, *bad], [])
    assert describe_dropped(bad, []) == f"unreadable time (2); {remedy}"


def test_an_empty_result_can_say_where_the_rows_went() -> None:
    assert (
        describe_dropped(BAD, [Removed(filter="kinds", events=3)])
        == "null user (1,200), null time (1), filter kinds (3)"
    )
    assert describe_dropped([], []) == "the source has no rows"
