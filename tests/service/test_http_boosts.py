"""Boosts and pins, of requests and of rules: answers as the whole catalog ranks with the added numbers."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import contents
from tests.support.item_towers import placed, with_item_tower
from tests.support.service_app import ADMIN, activate, ids, recommended, serving
from turret.service.schemas.requests import BOOSTS, BOOSTS_OF_AN_ANSWER
from turret.tower.bundle.publish import publish

ITEMS = range(100, 160)
ALL = len(ITEMS) + 2  # with two fresh items
CHEAP, DEAR = {"price": {"lt": 3}}, {"price": {"gte": 8}}
BY_TITLE = {"title": {"under": "New"}}


def price(item: int) -> int:
    return item * 7 % 11


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """60 items with prices from 0 to 10, two fresh items, one changed, one withdrawn."""
    root = tmp_path_factory.mktemp("shop")
    made = with_item_tower(contents("v1"))
    prices = {"price": [price(item) for item in ITEMS]}
    publish(root, replace(made, fields={**made.fields, **prices}))
    publish(root, contents("v2"))
    with serving(root) as client:
        activate(client, "v1")
        for item, fields in ((900, {"title": "New", "price": 1}), (901, {"title": "New", "price": 9})):
            place = [0.1 * (item - 899), 0.5, -0.3, 0.2, 0.0, 0.7, -0.1, 0.4]
            body = {"features": placed(place), "fields": fields}
            assert client.put(f"/v1/items/{item}", json=body, headers=ADMIN).status_code == 200
        changed = client.patch("/v1/items/103", json={"fields": {"price": 2}}, headers=ADMIN)
        assert changed.status_code == 200
        assert client.delete("/v1/items/104", headers=ADMIN).status_code == 200
        yield client


@pytest.fixture
def no_rules(shop: TestClient) -> Iterator[TestClient]:
    """The shop; the rules of a test go with it."""
    yield shop
    assert put(shop).status_code == 200


def put(client: TestClient, **rules: object) -> httpx2.Response:
    return client.put("/v1/rules", json={"rules": rules}, headers=ADMIN)


def matches(condition: dict[str, Any], fields: dict[str, Any]) -> bool:
    """Whether fields meet a filter of the forms in this file, stated once more."""
    (name, operators), *_ = condition.items()
    ((operator, bound),) = operators.items()
    value = fields.get(name)
    if value is None:
        return False
    if operator in ("under", "equals"):
        return bool(value == bound)
    return bool(value < bound if operator == "lt" else value >= bound)


def expected(
    client: TestClient, boosts: list[dict[str, Any]], pins: list[dict[str, int]], **body: Any
) -> list[tuple[int, float]]:
    """All items by their own scores, read without boosts, with the boosts added and the pins put in place."""
    answer = recommended(client, **body, k=ALL, rules=[])
    scored = []
    for item in answer["items"]:
        added = sum(boost["by"] for boost in boosts if matches(boost["filter"], item["fields"]))
        factor = 2.718281828459045**added
        is_count = answer["items"][0]["source"] == "popular"
        scored.append((item["id"], item["score"] * factor if is_count else item["score"] + added))
    there = {item for item, _ in scored}
    # Items of equal scores stay in the order of the catalog, as they come here.
    order = {item: place for place, item in enumerate([*ITEMS, 900, 901])}
    scored.sort(key=lambda pair: (-round(pair[1], 4), order[pair[0]]))
    own = dict(scored)
    pinned = {pin["position"]: pin["item"] for pin in pins if pin["item"] in there}
    rest = [pair for pair in scored if pair[0] not in pinned.values()]
    for position, item in sorted(pinned.items()):
        rest.insert(position - 1, (item, own[item]))
    return rest


conditions = st.one_of(
    st.builds(lambda bound: {"price": {"lt": bound}}, st.integers(0, 11)),
    st.builds(lambda bound: {"price": {"gte": bound}}, st.integers(0, 11)),
    st.builds(lambda value: {"price": {"equals": value}}, st.integers(0, 11)),
    st.just(BY_TITLE),
)
# Quarters: sums of them are exact, so that equal scores stay equal.
numbers = st.integers(-16, 16).filter(bool).map(lambda number: number / 4)
boosts_of_requests = st.lists(
    st.builds(lambda condition, by: {"filter": condition, "by": by}, conditions, numbers), max_size=4
)
pins_of_requests = st.lists(
    st.builds(
        lambda item, position: {"item": item, "position": position},
        st.sampled_from([*ITEMS, 900, 901]),
        st.integers(1, 70),
    ),
    max_size=4,
    unique_by=(lambda pin: pin["item"], lambda pin: pin["position"]),
)


@given(
    boosts=boosts_of_requests,
    pins=pins_of_requests,
    body=st.sampled_from(
        [
            {"history": [101]},
            {"history": [110, 120]},
            {"history": []},
            {"history": [130], "exclude_seen": False},
            {"history": [101], "filter": {"price": {"gte": 4}}},
            {"history": [], "filter": {"price": {"lt": 6}}},
            {"history": [101], "exclude": [900, 107]},
        ]
    ),
    k=st.integers(1, 25),
)
def test_pages_are_those_of_the_whole_catalog_with_the_added_numbers(
    shop: TestClient, boosts: list[Any], pins: list[Any], body: dict[str, Any], k: int
) -> None:
    whole = expected(shop, boosts, pins, **body)
    sent = {**body, "k": k, "boost": boosts, "pin": pins}
    found: list[tuple[int, float]] = []
    answer = recommended(shop, **sent)
    while True:
        found += [(item["id"], item["score"]) for item in answer["items"]]
        if "cursor" not in answer:
            break
        answer = recommended(shop, **sent, cursor=answer["cursor"])
    assert len({item for item, _ in found}) == len(found) == len(whole)
    assert [score for _, score in found] == pytest.approx([score for _, score in whole], rel=2e-5, abs=2e-5)
    of_score = dict(whole)
    assert all(abs(of_score[item] - score) < 1e-3 + 1e-4 * abs(score) for item, score in found)
    for place, (item, _) in enumerate(whole):
        if any(pin["item"] == item and pin["position"] == place + 1 for pin in pins):
            assert found[place][0] == item


def test_boosts_apply_beside_caps_least_scores_batches_and_similar_items(shop: TestClient) -> None:
    boosted = {"history": [101], "boost": [{"filter": CHEAP, "by": 50.0}]}
    best = recommended(shop, **boosted, k=5)
    assert all(item["fields"]["price"] < 3 for item in best["items"])
    capped = recommended(shop, **boosted, k=5, cap={"price": 1}, pin=[{"item": 105, "position": 2}])
    prices = [item["fields"]["price"] for item in capped["items"]]
    assert sorted(prices[:4]) == sorted({0, 1, 2, price(105)})
    assert capped["items"][1]["id"] == 105
    assert capped["items"][1]["pinned"] is True
    assert (
        len(recommended(shop, **boosted, k=ALL, min_score=40.0)["items"])
        == sum(price(item) < 3 for item in ITEMS if item not in (101, 103, 104)) + 2
    )
    batch = shop.post("/v1/recommend/batch", json={"requests": [boosted, {"history": [101]}]}).json()[
        "results"
    ]
    assert ids(batch[0]) == ids(recommended(shop, **boosted)) != ids(batch[1])
    similar = shop.post("/v1/items/110/similar", json={"boost": [{"filter": DEAR, "by": 50.0}]}).json()
    assert all(item["fields"]["price"] >= 8 for item in similar["items"])


def test_a_pin_has_its_place_only_where_the_answer_may_have_the_item(shop: TestClient) -> None:
    pin = [{"item": 104, "position": 1}, {"item": 101, "position": 2}, {"item": 900, "position": 3}]
    answer = recommended(shop, history=[101], pin=[*pin, {"item": 7, "position": 4}])
    assert answer["items"][2]["id"] == 900  # 104 is withdrawn, and 101 is in the history
    assert not {101, 104} & {*ids(answer)}
    assert answer["unknown_items"] == [7]
    assert [item.get("pinned", False) for item in answer["items"]].count(True) == 1
    filtered = recommended(shop, history=[101], pin=[{"item": 900, "position": 1}], filter=DEAR)
    assert 900 not in ids(filtered)


def test_explain_names_the_boosts_beside_the_parts_of_the_score(no_rules: TestClient) -> None:
    assert put(no_rules, spring={"boost": [{"filter": CHEAP, "by": 2.5}]}).status_code == 200
    body = {"history": [101], "explain": True, "rules": ["spring"], "k": ALL}
    answer = recommended(no_rules, **body, boost=[{"filter": BY_TITLE, "by": -1.0}])
    parts = {item["id"]: item for item in answer["explanation"]["items"]}
    fields = {item["id"]: item["fields"] for item in answer["items"]}
    assert parts[900]["boosts"] == [{"rule": "spring", "by": 2.5}, {"rule": None, "by": -1.0}]
    assert parts[900]["score_parts"]["boosts"] == 1.5
    for item in answer["items"]:
        own = parts[item["id"]]["score_parts"]
        added = (2.5 if matches(CHEAP, fields[item["id"]]) else 0.0) - (item["id"] in (900, 901))
        assert own.get("boosts", 0.0) == added
        assert item["score"] == pytest.approx(own["inner_product"] / own["temperature"] + added, abs=1e-5)


def test_default_rules_are_of_every_answer_that_says_nothing_else(no_rules: TestClient) -> None:
    rules = {
        "sold out": {"filter": {"price": {"gte": 3}}, "default": True},
        "first": {"pin": [{"item": 900, "position": 1}, {"item": 901, "position": 1 + 1}]},
    }
    assert put(no_rules, **rules).status_code == 200
    for body in ({"history": [101]}, {"user_id": "nobody"}, {}):
        items = recommended(no_rules, **body, k=ALL)["items"]
        assert {item["fields"]["price"] for item in items} == set(range(3, 11))
        assert len(recommended(no_rules, **body, k=ALL, rules=[])["items"]) > len(items)
        named = recommended(no_rules, **body, k=ALL, rules=["first"])
        assert ids(named)[:2] == [900, 901]
        assert len(named["items"]) > len(items)
    similar = no_rules.get("/v1/items/110/similar").json()
    assert all(item["fields"]["price"] >= 3 for item in similar["items"])
    batch = no_rules.post("/v1/recommend/batch", json={"requests": [{}, {"rules": []}]}).json()["results"]
    assert [ids(answer) for answer in batch] == [
        ids(recommended(no_rules)),
        ids(recommended(no_rules, rules=[])),
    ]


def test_a_rule_has_its_time_and_its_share_of_the_users(no_rules: TestClient) -> None:
    pin = {"pin": [{"item": 901, "position": 1}]}
    times = {"from": "2026-03-01", "until": "2026-04-01T00:00:00Z"}
    rules = {"spring": {**pin, **times, "default": True}, "try": {**pin, "share": 0.5}}
    shown = put(no_rules, **rules).json()["rules"]
    assert shown["spring"]["from"] == "2026-03-01T00:00:00.000+00:00"
    assert no_rules.put("/v1/rules", json={"rules": shown}, headers=ADMIN).json()["rules"] == shown
    moments = {"2026-02-28T23:59:59": False, "2026-03-01": True, "2026-03-31": True, "2026-04-01": False}
    for moment, applies in moments.items():
        assert (ids(recommended(no_rules, history=[101], at=moment))[0] == 901) is applies
    first = [ids(recommended(no_rules, user_id=f"u{user}", rules=["try"]))[0] == 901 for user in range(200)]
    again = [ids(recommended(no_rules, user_id=f"u{user}", rules=["try"]))[0] == 901 for user in range(200)]
    assert first == again
    assert 70 < sum(first) < 130
    assert ids(recommended(no_rules, rules=["try"]))[0] != 901  # a request of nobody


def test_a_default_rule_that_a_version_cannot_apply_costs_no_answer(tmp_path: Path) -> None:
    made = contents("v1")
    publish(tmp_path, replace(made, fields={**made.fields, "price": [price(item) for item in ITEMS]}))
    publish(tmp_path, contents("v2"))
    with serving(tmp_path) as client:
        activate(client, "v1")
        rules = {
            "sold out": {"filter": DEAR, "default": True},
            "dear": {"boost": [{"filter": DEAR, "by": 1}]},
        }
        assert put(client, **rules).status_code == 200
        assert activate(client, "v2", force=True).status_code == 200
        answer = recommended(client, history=[101])
        assert len(answer["items"]) == 10
        assert answer["degraded"] == ["rules"]
        named = client.post("/v1/recommend", json={"history": [101], "rules": ["dear"]})
        assert named.status_code == 409
        assert "can't apply this rule" in named.text


BOOST = {"filter": CHEAP, "by": 1.0}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"boost": [{"filter": {"colour": {"equals": "red"}}, "by": 1.0}]}, "boost.0.filter.colour"),
    ({"boost": [BOOST, {"filter": {"price": {"equals": "red"}}, "by": 1.0}]}, "boost.1.filter.price.equals"),
    ({"boost": [{"filter": {}, "by": 1.0}]}, "boost.0.filter"),
    ({"boost": [{"filter": CHEAP, "by": 0}]}, "boost.0.by"),
    ({"boost": [{"filter": CHEAP, "by": 1e9}]}, "boost.0.by"),
    ({"boost": [{"filter": CHEAP, "by": "1"}]}, "boost.0.by"),
    ({"boost": [{"filter": CHEAP}]}, "boost.0.by"),
    ({"boost": [BOOST] * (BOOSTS + 1)}, "boost"),
    ({"pin": [{"item": 900, "position": 1}, {"item": 901, "position": 1}]}, "pin"),
    ({"pin": [{"item": 900, "position": 1}, {"item": "900", "position": 2}]}, "pin"),
    ({"pin": [{"item": 900, "position": 0}]}, "pin.0.position"),
    ({"pin": [{"item": [], "position": 1}]}, "pin.0.item"),
]
REFUSED_RULES: list[tuple[dict[str, Any], str]] = [
    ({"pin": [{"item": 7, "position": 1}]}, "pin.0.item"),
    ({"filter": CHEAP, "from": "2026-03-01", "until": "2026-03-01"}, ""),
    ({"filter": CHEAP, "share": 0}, "share"),
    ({"filter": CHEAP, "share": 2}, "share"),
    ({"filter": CHEAP, "from": "soon"}, "from"),
    ({"filter": CHEAP, "from_": 5}, "from_"),
    ({"default": True}, ""),
]


@pytest.mark.parametrize(("content", "field"), REFUSED)
def test_what_makes_no_sense_is_refused_with_its_place(
    no_rules: TestClient, content: dict[str, Any], field: str
) -> None:
    request = no_rules.post("/v1/recommend", json={"history": [101], **content})
    assert (request.status_code, request.json()["error"]["field"]) == (422, field)
    rule = put(no_rules, r=content)
    assert (rule.status_code, rule.json()["error"]["field"]) == (422, f"rules.r.{field}")
    assert no_rules.get("/v1/rules").json()["rules"] == {}


@pytest.mark.parametrize(("content", "field"), REFUSED_RULES)
def test_a_rule_that_makes_no_sense_is_refused_when_it_is_stored(
    no_rules: TestClient, content: dict[str, Any], field: str
) -> None:
    rule = put(no_rules, r=content)
    assert (rule.status_code, rule.json()["error"]["field"]) == (422, f"rules.r.{field}".removesuffix("."))


def test_nan_is_no_boost(no_rules: TestClient) -> None:
    for number in ("NaN", "Infinity", "1e999"):
        body = f'{{"history": [101], "boost": [{{"filter": {{"price": {{"lt": 3}}}}, "by": {number}}}]}}'
        headers = {"Content-Type": "application/json"}
        assert no_rules.post("/v1/recommend", content=body, headers=headers).status_code in (400, 422)


def test_boosts_of_all_rules_are_bounded(no_rules: TestClient) -> None:
    full = {"boost": [BOOST] * BOOSTS}
    most = BOOSTS_OF_AN_ANSWER // BOOSTS
    refused = put(no_rules, **{f"r{rule}": {**full, "default": True} for rule in range(most)})
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "rules")
    assert put(no_rules, **{f"r{rule}": full for rule in range(most + 1)}).status_code == 200
    names = [f"r{rule}" for rule in range(most + 1)]
    assert recommended(no_rules, history=[101], rules=names[:most])["items"]
    asked = no_rules.post("/v1/recommend", json={"history": [101], "rules": names})
    assert (asked.status_code, asked.json()["error"]["field"]) == (422, "rules")
