"""Kinds of events: targets, signals, negatives and ignored ones, from the log to the prepared folder."""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.conftest import Prepare, prepare_as
from turret.data.kinds import Kind, left_out_for, read_kinds, text_of_kind
from turret.data.prepared import PARTS, look_up
from turret.data.preparing.describe import describe
from turret.data.reading.schema import PrepareConfig

HEADER = "user_id,item_id,timestamp,event\n"
SHOP = {
    "columns.kind": "event",
    "kinds": ["view=signal:0.5", "cart=signal", "buy=target:2:consume", "back=negative", "ping=ignored"],
}
START = 1_700_000_000


def csv(rows: Sequence[tuple[Any, ...]]) -> str:
    return HEADER + "".join(",".join(map(str, row)) + "\n" for row in rows)


LOG = csv(
    [
        ("a", "x", 1, "view"),
        ("a", "x", 2, "buy"),
        ("a", "y", 3, "cart"),
        ("a", "x", 3, "back"),
        ("a", "z", 4, "view"),
        ("a", "z", 5, "buy"),
        ("a", "y", 6, "view"),
        ("a", "y", 7, "buy"),
        ("a", "x", 8, "view"),
        ("a", "q", 9, "ping"),
        ("a", "q", 9, "swipe"),
        ("b", "x", 1, "view"),
        ("b", "y", 2, "view"),
        ("b", "x", 3, "view"),
        ("b", "x", 4, "back"),
    ]
)


def test_each_role_has_its_place_in_the_folder(prepared: Prepare) -> None:
    """Signals are read as history of the targets behind them, and users without a target train nothing."""
    data = prepared(LOG, SHOP)
    assert data.kinds is not None
    assert data.weights is not None
    assert data.negatives is not None
    assert data.item_ids.ids(data.event_items.tolist()) == list("xxyzzyyx" + "xyx")
    assert data.kinds.tolist() == [0, 2, 1, 0, 2, 0, 2, 0, *[0] * 3]
    assert data.weights.tolist() == [0.5, 2, 1, 0.5, 2, 0.5, 2, 0.5] + [0.5] * 3
    assert read_kinds(data.manifest.kinds) == ("view", "cart", "buy")
    assert look_up(data.folder, "a", limit=3)[2] == ["view", "buy", "view"]
    assert data.manifest.kinds["buy"] == Kind(weight=2, consume=True)
    assert data.splits.tolist() == [[4, 6], [11, 11]]
    assert [data.item_ids.ids(data.targets(0, part).tolist()) for part in PARTS] == [["x"], ["z"], ["y"]]
    # The item that went back was not chosen when z was.
    assert np.diff(data.negatives.offsets).tolist() == [0, 0, 0, 0, 1, 0, 0, 0, *[0] * 3]
    split = data.manifest.split
    assert (split.events, split.targets) == (
        {"train": 7, "validation": 2, "test": 2},
        {"train": 1, "validation": 1, "test": 1},
    )
    assert split.users == {"train": 1, "validation": 1, "test": 1}
    removed = {one.filter: one.events for one in data.manifest.removed}
    assert removed == {"kinds": 2, "negatives after the last event": 1}
    said = describe(data.folder)
    for line in (
        "view: 7 events, signal:0.5",
        "buy: 3 events, target:2:consume",
        "back: negative",
        "7 events, 1 of them targets, of 1 users",
    ):
        assert line in said


def test_the_weight_of_an_event_is_that_of_its_kind_times_that_of_its_row(prepared: Prepare) -> None:
    rows = [("view", 4), ("cart", 7), ("back", 5), ("buy", 3), ("view", 1)]
    text = "user,item,time,event,stars\n" + "".join(
        f"u,i{place},{START + place},{kind},{stars}\n" for place, (kind, stars) in enumerate(rows)
    )
    kinds = ["view=signal:0.5", "cart=signal", "buy=target:2", "back=negative:3"]
    data = prepared(text, {**SHOP, "kinds": kinds, "columns.weight": "stars"})
    assert data.weights is not None
    assert data.negatives is not None
    assert data.negatives.weights is not None
    assert data.weights.tolist() == [0.5 * 4, 7, 2 * 3, 0.5]
    assert data.negatives.weights.tolist() == [3 * 5]


def test_the_strongest_event_is_a_target_then_that_of_the_largest_weight(prepared: Prepare) -> None:
    rows = [("a", "x", 1, "buy"), ("a", "x", 2, "view"), ("a", "y", 3, "cart"), ("a", "y", 4, "view")]
    rows.append(("b", "x", 9, "buy"))
    for kinds, kept in (
        (["view=signal", "cart=signal", "buy"], [(1, 2), (4, 0), (9, 2)]),
        (["view=signal", "cart=signal:3", "buy=target:.5"], [(1, 2), (3, 1), (9, 2)]),
    ):
        data = prepared(csv(rows), {**SHOP, "kinds": kinds, "filters.duplicates": "strongest"})
        assert data.kinds is not None
        assert list(zip(data.times.tolist(), data.kinds.tolist(), strict=True)) == kept


def test_with_a_gap_the_strongest_is_that_of_a_session(prepared: Prepare) -> None:
    """A funnel is one event, and the next visit another, with times in seconds."""
    rows = [("a", "x", 0, "view"), ("a", "x", 60, "buy"), ("a", "y", 1_859, "view")]
    rows += [("a", "x", 1_860, "view"), ("a", "x", 3_661, "view")]
    rows += [("b", "x", 3_661, "cart"), ("b", "x", 3_662, "view")]
    text = csv([(user, item, START + time, kind) for user, item, time, kind in rows])
    kinds = {"columns.kind": "event", "kinds": ["view=signal", "cart=signal:2", "buy=target:3"]}
    for gap, kept in (
        ("30m", [60, 1_859, 3_661, 3_661]),
        ("1d", [60, 1_859, 3_661]),
        (None, [60, 1_859, 3_661]),
    ):
        data = prepared(text, {**kinds, "filters.duplicates": "strongest", "filters.session_gap": gap})
        assert (data.times // 1000 - START).tolist() == kept, gap


def test_the_table_is_part_of_the_fingerprint(prepared: Prepare) -> None:
    by_table = {
        prepared(csv([("a", "x", 1, "buy")]), {"columns.kind": "event", **table}).fingerprint
        for table in ({}, {"kinds": ["buy"]}, {"kinds": ["buy=target:1:consume"]})
    }
    assert len(by_table) == 3


def _funnel(visits: int, repeats: int = 1) -> list[tuple[Any, ...]]:
    """Each user puts what is viewed into the cart, and buys every fourth item."""
    rows = []
    for user in range(visits):
        for item in range(8):
            steps = ["view", "view", "cart", *["buy"] * repeats * (item % 4 == 0)]
            rows += [(f"u{user}", item, 100 * user + place, kind) for place, kind in enumerate(steps)]
    return rows


PROPOSED = {"view": "signal", "cart": "signal", "buy": "target:consume"}


@pytest.mark.parametrize(
    ("rows", "table"),
    [
        (_funnel(3), PROPOSED),
        (_funnel(3)[::-1], PROPOSED),
        # Carts are rarer than purchases where some people buy at once.
        (
            [
                *_funnel(3),
                *(
                    (f"u{user}", 20 + user, 900 + step, kind)
                    for user in range(30)
                    for step, kind in enumerate(["view"] * 4 + ["buy"])
                ),
            ],
            PROPOSED,
        ),
        (_funnel(3, repeats=2), PROPOSED | {"buy": "target"}),
        ([*_funnel(3), ("u1", 0, 900, "Refund")], PROPOSED | {"Refund": "negative"}),
        ([(f"u{number}", number, number, "buy" if number % 5 == 0 else "view") for number in range(50)], {}),
        ([row for row in _funnel(3) if row[3] == "view"], {}),
        ([("u", 1, number, "buy" if number % 2 else "view") for number in range(50)], {}),
        ([("u", 1, number, f"kind {number % 11}") for number in range(50)], {}),
    ],
)
def test_a_table_is_proposed_for_a_funnel_alone(
    tmp_path: Path, rows: list[tuple[Any, ...]], table: dict[str, str]
) -> None:
    """Printed as options and as TOML, and used with --kinds auto; the column may have a usual name."""
    (tmp_path / "log.csv").write_text(csv(rows))
    prepared = {}
    for kinds in ("auto", None):
        prepared[kinds] = prepare_as(tmp_path / "prepared", source=tmp_path / "log.csv", kinds=kinds)
        said = [one for one in prepared[kinds].warnings if one.startswith("kinds: ")]
        assert len(said) == bool(table or kinds)
        if table:
            options = re.findall(r"--kind (\S+)=(\S+)", said[0])
            assert dict(options) == table
            toml = tomllib.loads(said[0].partition("\n\n")[2].partition("\n\n")[2])
            assert toml == {"columns": {"kind": "event"}, "kinds": table}
    used = prepared["auto"].manifest
    assert {name: text_of_kind(kind) for name, kind in used.kinds.items()} == table
    assert PrepareConfig.model_validate(used.settings).kinds == used.kinds
    assert (prepared[None].manifest.kinds, prepared[None].manifest.columns.kind) == ({}, None)


def test_the_test_targets_that_cannot_be_hit_are_those_that_were_consumed(tmp_path: Path) -> None:
    """A view before a purchase leaves nothing out, a purchase does where it consumes.

    But it makes the purchase easy to tell, which is said.
    """
    rows = [(user, item, START + 60 * time, kind) for user in "ab" for time, (item, kind) in enumerate(
        [("x", "view"), ("x", "buy"), ("y", "buy"), ("z", "view"), ("z", "buy"), ("x", "buy")]
    )]  # fmt: skip
    (tmp_path / "log.csv").write_text(csv(rows))
    for kinds, said in ((["view=signal", "buy"], False), (["view=signal", "buy=target:1:consume=9"], True)):
        report = prepare_as(tmp_path / "p", source=tmp_path / "log.csv", columns__kind="event", kinds=kinds)
        assert any("2 of 2 test targets were used before" in one for one in report.warnings) == said
        assert any("with --duplicates strongest --session-gap 30m" in one for one in report.warnings)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (None, [0.0, np.inf, 30 * 86_400_000.0, 0.0]),
        (True, [np.inf] * 4),
        (False, [0.0] * 4),
        (("view",), [np.inf, 0.0, 0.0, 0.0]),
    ],
)
def test_how_long_answers_leave_out_the_item_of_an_event(seen: Any, expected: list[float]) -> None:
    kinds = {
        "view": Kind(role="signal"),
        "back": Kind(role="negative", consume=True),
        "buy": Kind(consume=True),
        "rent": Kind(consume=30),
    }
    assert left_out_for(kinds, seen) == expected
    if not isinstance(seen, tuple):
        assert left_out_for({}, seen) == [0.0 if seen is False else np.inf]
