"""`turret outcomes`: events that are outcomes of answers, and the canary beside the live version."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from tests.support.command_line import invoke, output
from turret.data.answers.attribution import Attribution
from turret.data.answers.events import EventCollector, OutcomeEvents
from turret.data.answers.files import COLUMNS
from turret.data.answers.form import answer_id_of, minute_file, visitor_of
from turret.data.answers.log import SCHEMA
from turret.data.answers.outcomes import Outcomes, outcomes_of
from turret.data.errors import ConfigurationError, EmptyDataError
from turret.data.synthetic.answers import KEY, AnswersConfig, answer_tables
from turret.data.synthetic.synthesis import synthesise_answers
from turret.outcomes.attribution import EVENTS, attribute, with_kinds
from turret.service.stores.contract import Event

HOUR, DAY = 3_600_000, 86_400_000
NOON = 1_777_636_800_000  # 2026-05-01T12:00:00Z


def answer(time: int, user: str, *items: str, route: str = "live", number: int = 0) -> dict[str, Any]:
    """A row of the log: an answer `time` milliseconds after noon."""
    return {
        "answer_id": answer_id_of(NOON + time, bytes([number, *user.encode()[:9]])),
        "time": NOON + time,
        "call": "recommend",
        "version": {"live": "spring", "canary": "summer"}[route],
        "route": route,
        "visitor": visitor_of(user, KEY) if user else "",
        "items": list(items),
        "places": list(range(1, len(items) + 1)),
        "scores": [0.0] * len(items),
        "sources": ["towers"] * len(items),
        "propensities": [1.0] * len(items),
        "context": "{}",
        "rules": [],
    }


class Blocks:
    """Answers in blocks of some rows, as a log has them in files."""

    def __init__(self, *rows: dict[str, Any], size: int = 20_000) -> None:
        self.table = pa.Table.from_pylist(sorted(rows, key=lambda row: row["time"]), COLUMNS)
        self.size = size

    def blocks(self, *columns: str) -> Iterator[pa.Table]:
        for first in range(0, len(self.table), self.size):
            yield self.table.slice(first, self.size).select(columns)


def frame_of(*rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=SCHEMA)


def event(time: int, user: str, item: str, answer_id: str | None = None, kind: str | None = "buy") -> Event:
    return Event(f"{user}{time}{item}", user, item, NOON + time, kind, answer_id)


def events_of(*events: Event, kinds: Sequence[str] = ()) -> OutcomeEvents:
    collector = EventCollector(KEY, kinds)
    for each in events:  # one by one, as a store has them in pages
        collector.add([each])
    return collector.events()


def outcomes(answers: Blocks, *events: Event, values: dict[str, float] | None = None) -> Outcomes:
    """The outcomes within an hour."""
    return outcomes_of(answers, lambda first: events_of(*events), HOUR, values)


def places(answers: Sequence[dict[str, Any]], *events: Event, size: int) -> list[tuple[str, int, str]]:
    """The id, the place and the item of each outcome within an hour, of answers in blocks of a size."""
    found = Attribution(events_of(*events), HOUR)
    for table in Blocks(*answers, size=size).blocks(*COLUMNS.names):
        found.add(table, np.zeros(len(table), np.int64))
    rows = zip(found.answers.astype(str), found.places, (each.item for each in events), strict=True)
    return sorted((str(name), int(place), str(item)) for name, place, item in rows if name)


@pytest.mark.parametrize("size", [1, 10])
def test_an_event_that_names_an_answer_is_its_outcome_at_the_items_place(size: int) -> None:
    first, second = answer(0, "ann", "a", "b"), answer(HOUR, "ann", "b", "c", "b")
    events = [
        event(3 * HOUR, "ann", "b", first["answer_id"]),  # the newest answer with b is another one
        event(9 * HOUR, "bob", "c", second["answer_id"]),  # under another name, after a login
        event(9 * HOUR, "ann", "b", second["answer_id"]),  # shown twice: the first place
        event(HOUR, "ann", "c", first["answer_id"]),  # it never showed c
        event(HOUR, "ann", "a", "0" * 32),  # no such answer
    ]
    named = [(first["answer_id"], 2, "b"), (second["answer_id"], 2, "c"), (second["answer_id"], 1, "b")]
    assert places([first, second], *events, size=size) == sorted(named)


@pytest.mark.parametrize("size", [1, 10])
def test_an_event_without_a_name_belongs_to_the_newest_answer_with_the_item(size: int) -> None:
    old, new, other = answer(0, "ann", "a", "b"), answer(1_000, "ann", "b"), answer(2_000, "bob", "a")
    events = [
        event(1_500, "ann", "b"),
        event(1_500, "ann", "a"),
        event(HOUR, "ann", "a"),
        event(HOUR + 1, "ann", "a"),  # too late for the old one
        event(-1, "ann", "a"),  # before
        event(1_500, "bob", "a"),  # before the answer to bob
        event(1_500, "ann", "z"),
    ]
    old_one = (old["answer_id"], 1, "a")
    expected = sorted([(new["answer_id"], 1, "b"), old_one, old_one])
    assert places([new, other, old], *events, size=size) == expected


def by_search(rows: Sequence[dict[str, Any]], *events: Event) -> list[tuple[str, int, str]]:
    """`places` by the definition: each event looks through all answers."""
    expected = []
    for each in events:
        visitor, item = visitor_of(each.user, KEY), str(each.item)
        fitting = [
            row
            for row in rows
            if item in row["items"]
            and (
                row["visitor"] == visitor and 0 <= each.time - row["time"] <= HOUR
                if each.answer_id is None
                else row["answer_id"] == each.answer_id
            )
        ]
        if fitting:
            newest = max(fitting, key=lambda row: (row["time"], row["answer_id"]))
            expected.append((newest["answer_id"], newest["items"].index(item) + 1, item))
    return sorted(expected)


@pytest.mark.parametrize("size", [1, 3, 7, 40])
def test_attribution_is_that_of_a_search_through_all_answers(size: int) -> None:
    random = np.random.default_rng(size)
    for _ in range(5):
        rows = [
            answer(int(time), f"u{random.integers(4)}", *random.choice(list("abcdef"), 3), number=number)
            for number, time in enumerate(random.integers(0, 300, 40) * 36_000)
        ]
        events = []
        for time in random.integers(0, 400, 60) * 36_000:
            name = random.choice([row["answer_id"] for row in rows]) if random.random() < 0.3 else None
            user, item = f"u{random.integers(5)}", str(random.choice(list("abcdefg")))
            events.append(event(int(time), user, item, name))
        assert places(rows, *events, size=size) == by_search(rows, *events)


def test_each_event_counts_once() -> None:
    """Though the answer is in the log twice, showed the item twice, and other answers showed it too."""
    twice, before = answer(0, "ann", "a", "a"), answer(-1_000, "ann", "a")
    events = event(10, "ann", "a"), event(20, "ann", "a"), event(30, "ann", "a", twice["answer_id"])
    for size in (1, 10):
        (row,) = outcomes(Blocks(before, twice, twice, size=size), *events).rows
        assert (row["answers"], row["outcomes"]) == (2, 3)
        assert row["with_outcome"] == 0.5


def test_a_row_has_the_shares_of_its_places_and_the_revenue() -> None:
    answers = [answer(0, "ann", "a", "b"), answer(1, "bob", "c", "a"), answer(2, "", "a")]
    events = event(5, "ann", "b"), event(6, "bob", "c"), event(7, "bob", "a")
    result = outcomes(Blocks(*answers), *events, values={"a": 2.0, "b": 0.5})
    (row,) = result.rows
    assert (row["answers"], row["users"], row["outcomes"]) == (3, 2, 3)
    assert row["by_place"] == [
        {"place": 1, "shown": 3, "share": pytest.approx(1 / 3)},
        {"place": 2, "shown": 2, "share": 1.0},
    ]
    assert row["revenue"] == 2.5
    assert result.warnings == ["1 of 3 outcomes are of items without a value, and count 0"]
    assert result.comparison is None
    assert "one route alone" in result.text()


def test_a_key_by_which_no_user_is_a_visitor_of_the_log_is_told() -> None:
    answers = answer(0, "ann", "a"), answer(1, "bob", "a", route="canary")
    for user, is_told in (("eve", True), ("ann", False)):
        result = outcomes(Blocks(*answers), event(10, user, "a", answers[0]["answer_id"]))
        assert any("is --key the key" in warning for warning in result.warnings) is is_told
    assert not outcomes(Blocks(*answers)).warnings


def test_a_canary_that_became_live_is_not_compared_with_itself() -> None:
    old = answer(0, "ann", "a"), answer(20, "bob", "a", route="canary")
    for begun in (15, 30):  # the last answer of the canary may come after the first of the live version
        result = outcomes(Blocks(*old, answer(begun, "eve", "a") | {"version": "summer"}))
        assert result.comparison is None
        assert "no canary answered beside the newest live version" in result.text()
        assert "--since" in result.text()
    apart = answer(30, "eve", "a") | {"version": "autumn"}
    assert outcomes(Blocks(*old, apart)).comparison is None


def many(random: np.random.Generator, users: int, lift: float) -> tuple[list[dict[str, Any]], list[Event]]:
    """Answers to users of both routes, a few of whom have most answers, and purchases in a tenth of them."""
    rows, events = [], []
    for user in range(users):
        route = "canary" if user % 2 else "live"
        for number in range(1 + 40 * (user % 20 in (0, 1))):
            time = int(random.integers(0, 7 * DAY))
            rows.append(answer(time, f"u{user}", "a", "b", route=route, number=number))
            if random.random() < 0.1 * (1 + lift * (route == "canary")):
                events.append(event(time + 10, f"u{user}", "a", rows[-1]["answer_id"]))
    return rows, events


def test_the_comparison_is_by_user_and_not_by_answer() -> None:
    """Half of the answers go to a twentieth of the users, so the interval is far wider than by answer."""
    rows, events = many(np.random.default_rng(0), 2_000, 0.3)
    compared = outcomes(Blocks(*rows, size=700), *events).comparison
    assert compared is not None
    assert compared["live"]["users"] == pytest.approx(1_000, abs=5)  # but those outside of the common time
    assert compared["canary"]["users"] == pytest.approx(1_000, abs=5)
    users = frame_of(*rows).select("visitor", "route").unique()
    bought = pl.DataFrame({"visitor": [visitor_of(each.user, KEY) for each in events]})
    counts = users.join(bought.group_by("visitor").len("n"), on="visitor", how="left").fill_null(0)
    live, canary = (counts.filter(pl.col("route") == route)["n"].to_numpy() for route in ("live", "canary"))
    assert compared["lift"] == pytest.approx(canary.mean() / live.mean() - 1, rel=0.02)
    variance = sum(each.var(ddof=1) / len(each) / each.mean() ** 2 for each in (live, canary))
    half_width = (np.log1p(compared["high"]) - np.log1p(compared["low"])) / 2
    assert half_width > 3 * np.sqrt(variance)  # an interval that holds at every look
    by_answer = 1 / (live.sum()) + 1 / (canary.sum())
    assert variance > 1.5 * by_answer


def test_users_who_had_both_routes_count_for_neither() -> None:
    answers = [answer(0, "ann", "a"), answer(1, "ann", "a", route="canary"), answer(2, "bob", "a")]
    answers += [answer(-1, "eve", "a", route="canary"), answer(2, "eve", "a", route="canary", number=1)]
    compared = outcomes(Blocks(*answers))
    assert compared.comparison is not None
    assert (compared.comparison["live"]["users"], compared.comparison["canary"]["users"]) == (1, 1)
    assert "1 of 3 users had answers of both routes" in compared.warnings[0]


def test_answers_outside_of_the_time_of_the_canary_do_not_count_in_the_comparison() -> None:
    answers = [answer(-DAY, "old", "a"), answer(0, "ann", "a", route="canary"), answer(1, "bob", "a")]
    answers += [answer(2, "eve", "a", route="canary"), answer(DAY, "new", "a")]
    result = outcomes(Blocks(*answers))
    assert result.comparison is not None
    assert result.comparison["live"]["users"] == 1
    assert result.rows[0]["answers"] == 3


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (
            [answer(0, "ann", "a"), answer(1, "bob", "b", route="canary")],
            "no user of one route has an outcome",
        ),
        ([answer(0, "", "a"), answer(1, "bob", "b", route="canary")], "no user of one route has an outcome"),
        ([answer(0, "ann"), answer(1, "bob", route="canary")], "no user of one route has an outcome"),
    ],
    ids=["no outcomes", "no users in one route", "answers without items"],
)
def test_a_log_that_says_nothing_is_told_so(answers: Sequence[dict[str, Any]], words: str) -> None:
    result = outcomes(Blocks(*answers))
    assert result.comparison is not None
    assert not result.comparison["decided"]
    assert words in result.text()


def test_an_empty_log_and_a_kind_that_no_event_has_are_refused() -> None:
    with pytest.raises(EmptyDataError, match="has no answers of this time"):
        outcomes(Blocks())
    events = event(0, "ann", "a"), event(0, "ann", "a", kind=None)
    with pytest.raises(
        ConfigurationError, match=r"kind 'sale'; the stored .* other kinds: \(without a kind\), buy"
    ):
        events_of(*events, kinds=["sale"])
    assert len(events_of(*events, kinds=["buy"]).times) == 1
    rows = [(visitor_of(each.user, KEY), each.user, each.item, each.time, each.kind, None) for each in events]
    with pytest.raises(ConfigurationError, match="other kinds"):
        with_kinds(pl.DataFrame(rows, schema=EVENTS, orient="row"), ["sale"])


def test_one_user_with_most_answers_does_not_decide() -> None:
    """All purchases of the canary are of one user with 20,000 answers."""
    count = 20_000
    crowd = answer(0, "bob", "a", route="canary")
    rows = [
        {**crowd, "answer_id": f"{number:032x}", "time": NOON + 1_000 * number} for number in range(count)
    ]
    rows += [answer(5, f"u{user}", "a", route=("live", "canary")[user % 2]) for user in range(400)]
    bought = [event(10, f"u{user}", "a") for user in range(0, 400, 2)]
    bought += [event(1_000 * second, "bob", "a") for second in range(1_000)]
    result = outcomes(Blocks(*rows), *bought)
    assert result.rows[1]["answers"] == count + 200
    assert result.comparison is not None
    assert not result.comparison["decided"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small shop with answers, whose events before and after them are in a store."""
    folder = tmp_path_factory.mktemp("shop")
    synthesise_answers(AnswersConfig(users=600, items=60, pool=20, places=5), folder / "shop")
    for name in ("events", "outcomes"):
        store = f"sqlite:///{folder}/history.sqlite"
        kinds = ("--kind-column", "kind", "--kind", "purchase=target")
        output("history", "load", folder / "shop" / f"{name}.csv", *kinds, "--store", store, folder=folder)
    return folder


WORDS = "--answers", "shop/answers", "--store", "sqlite:///history.sqlite", "--key", "shop/visitors.key"


def test_the_command_finds_the_outcomes_of_the_shop(shop: Path) -> None:
    """The events in the store name their answers, as those in the file do."""
    told = json.loads(output("outcomes", *WORDS, "--kind", "purchase", "--json", folder=shop))
    tables = answer_tables(AnswersConfig(users=600, items=60, pool=20, places=5))
    assert [row["route"] for row in told["versions"]] == ["live", "canary"]
    assert sum(row["outcomes"] for row in told["versions"]) == tables.outcomes.height
    answers = dict(tables.answers.group_by("version").len().iter_rows())
    assert {row["version"]: row["answers"] for row in told["versions"]} == answers
    text = output("outcomes", *WORDS, "--kind", "purchase", folder=shop)
    assert "summer beside spring: canary sells" in text
    assert told["comparison"]["sentence"] in text


def test_the_ids_of_the_shop_lead_to_the_same_outcomes() -> None:
    tables = answer_tables(AnswersConfig(users=200, items=60, pool=20, places=5))
    visitors = [visitor_of(user, KEY) for user in tables.outcomes["user_id"]]
    columns = {"visitor": visitors, "user": tables.outcomes["user_id"], "item": tables.outcomes["item_id"]}
    times = (tables.outcomes["timestamp"] * 1_000).cast(pl.Datetime("ms", "UTC"))
    events = pl.DataFrame({**columns, "time": times, "kind": tables.outcomes["kind"]})
    events = events.with_columns(tables.outcomes["answer_id"]).cast(EVENTS)
    by_id = attribute(tables.answers, events, HOUR)
    by_time = attribute(tables.answers, events.with_columns(answer_id=pl.lit(None, pl.String)), HOUR)
    assert by_id.height == by_time.height == events.height
    key = ["answer_id", "item"]
    assert by_id.join(by_time, on=key, how="semi").height >= 0.98 * events.height


def test_damage_inside_of_a_file_is_told(shop: Path) -> None:
    """The end of the file, which lists its columns, is whole."""
    folder = shop / "damaged"
    path = minute_file(folder, NOON, "0")
    path.parent.mkdir(parents=True)
    frame_of(*(answer(number, f"u{number}", "a", "b") for number in range(2_000))).write_parquet(path)
    data = bytearray(path.read_bytes())
    data[100 : len(data) // 2] = bytes(len(data) // 2 - 100)
    path.write_bytes(data)
    words = ("--answers", "damaged", *WORDS[2:])
    done = invoke("outcomes", *words, folder=shop)
    assert done.returncode == 1
    assert "1200_0.parquet can't be read" in done.stderr


def test_files_without_answers_are_no_answers(shop: Path) -> None:
    """A minute without a request may have a file without rows; a file without bytes is damaged."""
    path = minute_file(shop / "empty", NOON, "0")
    path.parent.mkdir(parents=True)
    frame_of().write_parquet(path)
    words = ("--answers", "empty", *WORDS[2:])
    assert "the log has no answers of this time" in invoke("outcomes", *words, folder=shop).stderr
    path.write_bytes(b"")
    assert "1200_0.parquet can't be read" in invoke("outcomes", *words, folder=shop).stderr


def test_outcomes_is_the_form_of_the_json() -> None:
    assert Outcomes((), None).as_json() == {"versions": [], "comparison": None, "warnings": []}
