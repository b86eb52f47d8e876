"""The contexts of events: kept through every step of a preparation, and named where they leak the item."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.data.conftest import Prepare, prepare_as
from tests.data.test_append import assert_grown
from turret.data.errors import ColumnError, ConfigurationError
from turret.data.prepared import PreparedData
from turret.data.preparing.append import append
from turret.data.preparing.describe import describe

LOG = """user_id,item_id,timestamp,device,hour
u1,b,978300762,desktop,9
u1,a,978300760,mobile,23
u2,a,978300761,,
u2,c,978300763,mobile,9
u3,a,978300764,NULL,7
"""


def contexts_of(data: PreparedData) -> list[tuple[Any, ...]]:
    """The user, the item and the raw context of each event."""
    rows = []
    for user in range(len(data.users)):
        for place in range(*data.offsets[user : user + 2]):
            (context,) = data.request_contexts(np.array([user]), np.array([place]))
            item = data.item_ids.id(int(data.event_items[place]))
            rows.append((data.users.id(user), item, data.context_features.raw(int(context))))
    return rows


def test_each_event_has_the_context_of_its_row(prepared: Prepare) -> None:
    data = prepared(LOG, {"context": ["device", "hour"]})
    assert contexts_of(data) == [
        ("u1", "a", {"device": "mobile", "hour": "23"}),
        ("u1", "b", {"device": "desktop", "hour": "9"}),
        ("u2", "a", {}),
        ("u2", "c", {"device": "mobile", "hour": "9"}),
        ("u3", "a", {"hour": "7"}),
    ]
    assert data.contexts is not None
    assert data.contexts[2] == 0  # the unknown context
    assert "device (category, 2 values)" in describe(data.folder)


def test_a_filter_leaves_each_event_its_context_and_drops_those_that_no_event_has(prepared: Prepare) -> None:
    data = prepared(LOG, {"context": ["device", "hour"], "filters.min_user_events": 2})
    assert [entry for entry in contexts_of(data) if entry[0] == "u2"] == [
        ("u2", "a", {}),
        ("u2", "c", {"device": "mobile", "hour": "9"}),
    ]
    assert data.context_features.count == 4
    assert data.context_features.features[1].values == ("23", "9")


def test_a_kind_is_told_by_the_values_or_stated(prepared: Prepare) -> None:
    """Numbers of many values are a number, and lists are lists; so are texts that are said to be one."""
    rows = [
        {"user_id": user, "item_id": place, "time": 978300760 + place, "x": user * 0.5, "pages": ["a", "b"]}
        | {"tags": "red|blue", "is_app": place == 1, "hour": place}
        for user in range(60)
        for place in range(3)
    ]
    names = ["x", "pages", "tags=multi", "is_app", "hour=number"]
    data = prepared(pl.DataFrame(rows), {"context": names})
    kinds = {feature.name: feature.kind for feature in data.context_features.features}
    of = {"x": "number", "pages": "multi", "tags": "multi", "is_app": "category", "hour": "number"}
    assert kinds == of
    raw = data.context_features.raw(int(data.request_contexts(np.array([7]), data.offsets[7:8] + 1)[0]))
    numbers = {"x": pytest.approx(3.5), "hour": pytest.approx(1)}
    assert raw == {**numbers, "pages": ["a", "b"], "tags": ["red", "blue"], "is_app": "true"}


@pytest.mark.parametrize("kinds", [(), ("d0", "d1=signal", "d2=negative")], ids=["alike", "of kinds"])
def test_appended_events_give_the_data_of_both_logs_in_one(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    """The log has the columns of other tests, of which w is a page here, and event a device or a kind."""
    pick = random.Random(4).randrange
    rows = [(pick(12), pick(8), 1_700_000_000 + place, f"p{pick(4)}", f"d{pick(3)}") for place in range(300)]
    settings = {"kinds": kinds, "columns__kind": "event"} if kinds else {}
    context = ["w=category", *([] if kinds else ["event"])]
    assert_grown(tmp_path, [rows[:120], rows[120:150], rows[150:]], rows, context=context, **settings)


def test_appended_events_without_the_column_have_an_unknown_context(tmp_path: Path) -> None:
    (tmp_path / "first.csv").write_text(LOG)
    (tmp_path / "dump.csv").write_text("user_id,item_id,timestamp\nu1,c,978300900\n")
    prepare_as(tmp_path / "data", source=tmp_path / "first.csv", context=["device"])
    append(tmp_path / "dump.csv", tmp_path / "data")
    contexts = contexts_of(PreparedData.open(tmp_path / "data"))
    assert contexts[1:3] == [("u1", "b", {"device": "desktop"}), ("u1", "c", {})]


def test_a_source_without_the_column_has_unknown_contexts(tmp_path: Path) -> None:
    (tmp_path / "web.csv").write_text(LOG)
    (tmp_path / "orders.csv").write_text("user_id,item_id,timestamp\nu1,c,978300900\n")
    files = [f"{name}:{tmp_path / name}.csv" for name in ("web", "orders")]
    prepare_as(tmp_path / "data", source_files=files, context=["device"])
    assert contexts_of(PreparedData.open(tmp_path / "data"))[1:3] == [
        ("u1", "b", {"device": "desktop"}),
        ("u1", "c", {}),
    ]


def test_data_without_contexts_has_no_trace_of_them(tmp_path: Path, prepared: Prepare) -> None:
    data = prepared(LOG)
    assert data.contexts is None
    assert '"context' not in (data.folder / "manifest.json").read_text()
    assert not [path for path in data.folder.rglob("*") if "context" in path.name]


def shop_with_prices(tmp_path: Path) -> Path:
    """A device says a little of the item, and the price paid, with some discounts, nearly all."""
    draw, rows = random.Random(2), []
    for user in range(120):
        for place in range(12):
            device = draw.choice(["mobile", "desktop"])
            item = int(50 * draw.random() ** 2) + (3 if device == "mobile" else 0)
            price = 10 + 7 * item % 45 - draw.choice([0, 0, 0, 1])
            rows.append((user, item, 1_700_000_000 + 100 * place + user, device, price, draw.randint(1, 5)))
    schema = ["user_id", "item_id", "timestamp", "device", "price", "minute"]
    pl.DataFrame(rows, schema=schema, orient="row").write_csv(tmp_path / "shop.csv")
    return tmp_path / "shop.csv"


def test_a_column_that_tells_the_item_is_named_as_a_leak(tmp_path: Path) -> None:
    """Also as one of the roles of columns that are known only after the choice, which is refused."""
    shop, names = shop_with_prices(tmp_path), ["device", "price", "minute"]
    report = prepare_as(tmp_path / "data", source=shop, context=names)
    (leak,) = [sentence for sentence in report.warnings if "leak" in sentence]
    assert leak.startswith("--context price looks like a leak: its value leaves ")
    assert "leave the column out, unless it is known before the choice" in leak
    with pytest.raises(ColumnError, match="holds the weight of each event, which is known only after"):
        prepare_as(tmp_path / "other", source=shop, columns__weight="price", context=["price"])


def test_a_context_that_can_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log.csv").write_text(LOG)
    (tmp_path / "users.csv").write_text("user_id,device\nu1,phone\nu2,desk\nu3,desk\n")
    settings: dict[str, Any] = {"source": tmp_path / "log.csv", "context": ["device"]}
    for changed, sentence in (
        ({"context": ["place"]}, "no column 'place' for the context; its columns are user_id"),
        ({"context": ["item_id"]}, "holds the item of each event"),
        ({"context": ["device=text"]}, "a context can't be a text; give another kind"),
        ({"context": ["device=number"]}, "name the column with --context device=category"),
        (
            {"users": tmp_path / "users.csv", "user_features__category": ["device"]},
            "users have a feature of this name",
        ),
    ):
        with pytest.raises(ColumnError, match=sentence):
            prepare_as(tmp_path / "data", **{**settings, **changed})
    with pytest.raises(ConfigurationError, match="name the columns with --query-context"):
        prepare_as(tmp_path / "data", queries__source=tmp_path / "log.csv", context=["device"])
    monkeypatch.setattr("turret.data.preparing.contexts._MOST_CONTEXTS", 1)
    with pytest.raises(ColumnError, match="events have 4 distinct contexts, and the most is 1"):
        prepare_as(tmp_path / "data", **settings)
