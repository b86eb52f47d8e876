"""Logs of several sources: the rows of a web log and of orders are one log."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.conftest import BothWays, prepare_as
from turret.data.errors import BadRowsError, ConfigurationError, DataError
from turret.data.events.dropped_rows import PrepareReport
from turret.data.prepared import PreparedData
from turret.data.preparing.append import append

START = 1_735_689_600  # 2025-01-01
KINDS = {"view": "signal", "cart": "signal", "purchase": "target", "return": "negative", "ad": "ignored"}
STATES = {"shipped": "purchase", "refunded": "return", "seen": "view", "kept": "cart", "sent": "ad"}
HEADER = "user_id,session_id,item_id,event,time\n"
Row = dict[str, Any]
WEB = {"name": "web", "columns": {"time": "ts", "session": "sid"}}
ORDERS = {
    "name": "orders",
    "columns": {"user": "customer", "session": "visit", "item": "sku", "time": "at", "kind": "state"},
    "kinds": STATES,
}


def messy(seed: int, count: int) -> list[Row]:
    """Rows with repeats, strangers, logins, equal times, ids of two types, and bad rows of each kind."""
    draw = random.Random(seed)
    users, items = draw.choice([("ab", "xyz"), (["1", "2", "30"], ["7", "8", "9"])])
    return [
        {
            "user": draw.choice([*users, *users, None]),
            "session": draw.choice(["s1", "s2", None]),
            "item": draw.choice([*items, *items, *items, None]),
            "kind": draw.choice([*KINDS, "view", "purchase", "purchase", "rent", None]),
            "time": draw.choice([None, -1, *[START + 60 * draw.randrange(400) for _ in range(12)]]),
        }
        for _ in range(count)
    ]


def write_web(path: Path, rows: list[Row]) -> Path:
    """JSON lines with times in milliseconds; ids of digits are numbers."""
    names = {"user": "user_id", "session": "sid", "item": "item_id", "kind": "event"}
    lines = [
        {names[role]: int(row[role]) if (row[role] or "").isdigit() else row[role] for role in names}
        | {"ts": None if row["time"] is None else "never" if row["time"] < 0 else str(1000 * row["time"])}
        for row in rows
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def write_orders(path: Path, rows: list[Row]) -> Path:
    """A CSV in latin-1 with the order number in front, states in place of kinds, and times as dates."""
    states = {kind: state for state, kind in STATES.items()} | {"rent": "lent"}
    lines = ["order;customer;visit;sku;state;at"]
    for number, row in enumerate(rows):
        at = row["time"]
        shown = "" if at is None else "never" if at < 0 else str(pl.from_epoch(pl.Series([at]))[0])
        values = [row["user"], row["session"], row["item"], states.get(row["kind"]), shown]
        lines.append(";".join([f"é{number}", *("" if value is None else value for value in values)]))
    path.write_text("\n".join(lines) + "\n", "latin-1")
    return path


def write_whole(path: Path, rows: list[Row]) -> Path:
    """One CSV of all rows, with times in seconds."""
    lines = [
        ",".join(
            "" if value is None else str(value)
            for value in (row["user"], row["session"], row["item"], row["kind"], row["time"])
        ).replace(",-1", ",never")
        for row in rows
    ]
    path.write_text(HEADER + "\n".join(lines) + "\n")
    return path


def without_source(report: PrepareReport) -> dict[str, int]:
    """The numbers of bad rows by kind, and of removed rows by filter, over all sources."""
    counts: dict[str, int] = {}
    for bad in report.manifest.bad_rows:
        kind = bad.kind.removeprefix("web: ").removeprefix("orders: ")
        counts[kind] = counts.get(kind, 0) + bad.count
    return counts | {removed.filter: removed.events for removed in report.manifest.removed}


@pytest.mark.process
def test_spark_reads_several_sources_as_one_process_does(both_ways: BothWays, tmp_path: Path) -> None:
    rows = messy(5, 200)
    sources = [
        {**WEB, "file": str(write_web(tmp_path / "web.jsonl", rows[:120]))},
        {
            **ORDERS,
            "file": str(write_orders(tmp_path / "orders.csv", rows[120:])),
            "format": {"encoding": "latin-1"},
        },
    ]
    filters = {"duplicates": "strongest", "session_gap": "30m"}
    by_polars, by_spark = both_ways(sources=sources, kinds=KINDS, filters=filters, on_bad="drop=any")
    assert by_spark == by_polars


def sources_of(folder: Path, web: list[Row], orders: list[Row], name: str = "") -> list[dict[str, Any]]:
    """Write the rows as a web log and as orders, and return their settings."""
    return [
        {**WEB, "file": str(write_web(folder / f"web{name}.jsonl", web))},
        {
            **ORDERS,
            "file": str(write_orders(folder / f"orders{name}.csv", orders)),
            "format": {"encoding": "latin-1"},
        },
    ]


def in_order(rows: list[Row], first: int) -> list[Row]:
    """Valid rows of known users at distinct times, a minute apart from minute `first` on."""
    kept = [
        row for row in rows if None not in (row["user"], row["item"], row["kind"]) and row["kind"] != "rent"
    ]
    return [row | {"session": None, "time": START + 60 * (first + at)} for at, row in enumerate(kept)]


@pytest.mark.parametrize("with_dump", [False, True])
def test_new_files_of_the_sources_are_appended_as_if_all_were_prepared_in_one(
    tmp_path: Path, with_dump: bool
) -> None:
    """With a file such as `turret history dump` writes in the same call: its columns have usual names."""
    rows = in_order(messy(7, 900), 0)[:260]
    assert len(rows) == 260
    web, orders, new_web, new_orders = rows[0:160:2], rows[1:160:2], rows[160:200], rows[200:]
    shared = {"kinds": KINDS, "filters": {"duplicates": "strongest"}}
    prepare_as(tmp_path / "grown", sources=sources_of(tmp_path, web, orders), **shared)
    write_orders(tmp_path / "new.csv", new_orders)
    files = [f"orders:{tmp_path / 'new.csv'}"]
    dump = None
    if with_dump:
        dump = tmp_path / "dump.parquet"
        moments = pl.Series([row["time"] for row in new_web]).cast(pl.Int64)
        named = {"user_id": "user", "item_id": "item", "kind": "kind"}
        columns = {name: [row[role] for row in new_web] for name, role in named.items()}
        frame = pl.DataFrame(columns).with_columns(timestamp=pl.from_epoch(moments))
        frame.write_parquet(dump)
    else:
        files.append(f"web:{write_web(tmp_path / 'new.jsonl', new_web)}")
    report = append(dump, tmp_path / "grown", {"source_files": files})
    whole = sources_of(tmp_path, [*web, *new_web], [*orders, *new_orders], "_whole")
    expected = prepare_as(tmp_path / "whole", sources=whole, **shared)
    assert report.prepared.manifest.fingerprint == expected.manifest.fingerprint
    assert report.new > 0
    again = append(dump, tmp_path / "grown", {"source_files": files})
    assert again.prepared.manifest.fingerprint == expected.manifest.fingerprint
    with pytest.raises(
        ConfigurationError, match=r"no entry of \[\[sources\]\] is called 'shop'; the entries are"
    ):
        append(None, tmp_path / "grown", {"source_files": [f"shop:{tmp_path / 'new.csv'}"]})


GOOD = [
    {"user": f"u{user}", "session": None, "item": f"i{step}", "kind": "purchase", "time": START + 60 * step}
    for user in range(4)
    for step in range(5)
]
DROPPED = {"kinds": KINDS, "on_bad": "drop"}


def test_bad_rows_are_counted_and_shown_by_their_source(tmp_path: Path) -> None:
    wrong = [GOOD[0] | {"kind": "rent"}, GOOD[1] | {"time": -1}, GOOD[2] | {"item": None}]
    sources = sources_of(tmp_path, [*GOOD, wrong[1]], [*GOOD, *wrong])
    report = prepare_as(tmp_path / "prepared", sources=sources, **DROPPED)
    assert [(bad.kind, bad.count) for bad in report.manifest.bad_rows] == [
        ("orders: null item", 1),
        ("orders: unreadable time", 1),
        ("orders: value without a kind", 1),
        ("web: unreadable time", 1),
    ]
    (example,) = report.manifest.bad_rows[2].examples
    assert (example["file"], example["row"], example["state"]) == ("orders.csv", 22, "lent")
    with pytest.raises(BadRowsError) as refused:
        prepare_as(tmp_path / "none", sources=sources, kinds=KINDS)
    assert "orders: value without a kind: 1\n    file orders.csv, row 22" in str(refused.value)
    assert "give each value a kind in the kinds of its source" in str(refused.value)


def test_a_source_that_is_bad_as_a_whole_is_refused_beside_a_larger_one(tmp_path: Path) -> None:
    """Else an order file with a wrong column would be lost in a web log of many rows."""
    sources = sources_of(tmp_path, [*GOOD] * 3, [row | {"time": -1} for row in GOOD])
    with pytest.raises(BadRowsError, match=r"^20 of 20 rows of \S*orders.csv are not valid"):
        prepare_as(tmp_path / "prepared", sources=sources, **DROPPED)
    report = prepare_as(tmp_path / "prepared", sources=sources, **{**DROPPED, "on_bad": "drop=any"})
    assert report.manifest.counts.events == 60


def test_sources_of_odd_files_are_read_as_one_file_of_that_kind_is(tmp_path: Path) -> None:
    """A byte order mark, gzip, UTF-16, a column that comes twice, and a file of a header alone."""
    whole = prepare_as(tmp_path / "whole", sources=sources_of(tmp_path, GOOD[:10], GOOD[10:]), **DROPPED)
    web, orders = (tmp_path / name for name in ("web.jsonl", "orders.csv"))
    (tmp_path / "web.jsonl.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + web.read_bytes()))
    text = orders.read_text("latin-1")
    header, *lines = text.splitlines()
    doubled = "\n".join([f"{header};order", *(f"{line};0" for line in lines)])
    (tmp_path / "odd.csv").write_text(doubled + "\n", "utf-16")
    (tmp_path / "none.csv").write_text(header + "\n")
    odd = prepare_as(
        tmp_path / "odd",
        sources=[
            {**WEB, "file": str(tmp_path / "web.jsonl.gz")},
            {**ORDERS, "file": [str(tmp_path / "none.csv"), str(tmp_path / "odd.csv")]},
            {**ORDERS, "name": "old", "file": str(tmp_path / "none.csv")},
        ],
        **DROPPED,
    )
    assert odd.manifest.fingerprint == whole.manifest.fingerprint
    assert "old: no row has a readable time" in odd.warnings[0]


def test_a_source_may_have_one_kind_and_quantities_of_another_sign(tmp_path: Path) -> None:
    """Of a ledger of stock, in which a sale is -1, and of views in another file."""
    views = "user_id,item_id,time\n" + "".join(f"u{user},i{user},1\n" for user in range(3))
    ledger = "user_id,item_id,moved,time\nu0,i0,-1,2\nu1,i1,-2,2\nu1,i1,2,3\nu1,i2,-1,4\nu2,i2,0,5\n"
    (tmp_path / "views.csv").write_text(views)
    (tmp_path / "ledger.csv").write_text(ledger)
    sold = {
        "kind": "purchase",
        "return_kind": "return",
        "quantity_sign": -1,
        "columns": {"quantity": "moved"},
    }
    report = prepare_as(
        tmp_path / "prepared",
        sources=[
            {"name": "views", "file": str(tmp_path / "views.csv"), "kind": "view"},
            {"name": "ledger", "file": str(tmp_path / "ledger.csv"), **sold},
        ],
        **DROPPED,
    )
    assert [(bad.kind, bad.count) for bad in report.manifest.bad_rows] == [
        ("ledger: return (quantity not above 0)", 1)
    ]
    data = PreparedData.open(report.folder)
    assert data.kinds is not None
    names = list(KINDS)
    user = data.users.row("u1")
    assert user is not None
    kinds = data.kinds[data.offsets[user] : data.offsets[user + 1]]
    assert [names[code] for code in kinds] == ["view", "purchase", "purchase"]
    assert data.manifest.negatives == 1


def test_a_login_in_one_source_names_the_session_of_another(tmp_path: Path) -> None:
    """The web log has no users at all, and the orders have the session of the checkout."""
    web = "session_id,item_id,event,time\ns1,i1,view,1\ns2,i2,view,1\n"
    orders = "user_id,checkout,item_id,time\nann,s1,i1,5\n,,i3,6\n"
    (tmp_path / "web.csv").write_text(web)
    (tmp_path / "orders.csv").write_text(orders)
    report = prepare_as(
        tmp_path / "prepared",
        sources=[
            {"name": "web", "file": str(tmp_path / "web.csv"), "columns": {"session": "session_id"}},
            {
                "name": "orders",
                "file": str(tmp_path / "orders.csv"),
                "kind": "purchase",
                "columns": {"session": "checkout"},
            },
        ],
        kinds={"view": "signal", "purchase": "target"},
        on_bad="drop",
    )
    data = PreparedData.open(report.folder)
    histories = {
        data.users.id(user): data.item_ids.ids(data.history(user, "end").tolist())
        for user in range(len(data.users))
    }
    assert histories == {"ann": ["i1", "i1"], "session:s2": ["i2"]}
    assert [bad.kind for bad in report.manifest.bad_rows] == ["orders: null user"]


def test_times_of_two_kinds_have_no_order(tmp_path: Path) -> None:
    for name, time in (("a", "3"), ("b", "2024-05-01")):
        (tmp_path / f"{name}.csv").write_text(f"user_id,item_id,time\nu,i,{time}\n")
    files = [f"{name}:{tmp_path / name}.csv" for name in "ab"]
    with pytest.raises(
        DataError, match=r"the times of the source 'a' are of the kind 'number' \('time' holds"
    ):
        prepare_as(tmp_path / "prepared", source_files=files)


@given(
    seed=st.integers(0, 10**6),
    filters=st.sampled_from(
        [
            {"duplicates": "keep"},
            {"duplicates": "strongest"},
            {"duplicates": "strongest", "session_gap": "30m"},
            {"duplicates": "exact", "session_gap": "2h"},
            {"duplicates": "first", "min_user_events": 2, "min_item_events": 2},
            {"duplicates": "last", "max_user_events": 30},
        ]
    ),
)
def test_two_sources_are_the_file_of_their_rows(
    tmp_path_factory: pytest.TempPathFactory, seed: int, filters: dict[str, Any]
) -> None:
    """Their formats, encodings, names of columns, units of times and values of kinds differ."""
    folder = tmp_path_factory.mktemp("sources")
    rows = messy(seed, 120)
    draw = random.Random(-seed)
    in_web = [draw.random() < 0.6 for _ in rows]
    web = [row for row, is_of_web in zip(rows, in_web, strict=True) if is_of_web]
    orders = [row for row, is_of_web in zip(rows, in_web, strict=True) if not is_of_web]
    write_web(folder / "web.jsonl", web)
    write_orders(folder / "orders.csv", orders)
    write_whole(folder / "whole.csv", [*web, *orders])
    shared = {"kinds": KINDS, "filters": filters, "on_bad": "drop=any"}
    one = prepare_as(folder / "one", source=folder / "whole.csv", columns={"session": "session_id"}, **shared)
    several = prepare_as(
        folder / "several",
        sources=[
            {**WEB, "file": str(folder / "web.jsonl")},
            {**ORDERS, "file": str(folder / "orders.csv"), "format": {"encoding": "latin-1"}},
        ],
        **shared,
    )
    counts = without_source(several)
    # A kind that no table has is left out in a column of kinds, and bad as a state.
    unknown = counts.pop("value without a kind", 0)
    assert unknown == sum(row["kind"] == "rent" for row in orders)
    assert counts | {"kinds": counts.get("kinds", 0) + unknown} == {"kinds": 0} | without_source(one)
    assert several.manifest.fingerprint == one.manifest.fingerprint
    assert several.manifest.split == one.manifest.split
