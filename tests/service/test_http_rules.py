"""`/v1/rules`: named filters and caps that requests refer to."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient

from tests.conftest import contents
from tests.support.item_towers import with_item_tower
from tests.support.service_app import ADMIN, activate, ids, recommended, serving
from turret.service.schemas.version_requests import RULES
from turret.service.versions.record import RULES_BYTES, RuleSet
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.catalog.columns import TermColumn

LATE = {"filter": {"title": {"gte": "Item 150"}}}
EVEN = {"filter": {"title": {"any_of": [f"Item {item}" for item in range(100, 160, 2)]}}}

# The other fields of a rule, as they are shown.
UNSAID: dict[str, Any] = {
    "cap": {},
    "boost": [],
    "pin": [],
    "from": None,
    "until": None,
    "share": 1.0,
    "default": False,
}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[TestClient]:
    """60 items with the ids 100 to 159 and their titles; `v2` has no titles."""
    publish(tmp_path, with_item_tower(contents("v1")))
    bare = contents("v2")
    publish(tmp_path, BundleContents(**{**vars(bare), "fields": {"genres": bare.fields["genres"]}}))
    with serving(tmp_path) as client:
        activate(client, "v1")
        yield client


def put(client: TestClient, **rules: object) -> httpx2.Response:
    return client.put("/v1/rules", json={"rules": rules}, headers=ADMIN)


def rolled_back(client: TestClient, since: str | None = None) -> httpx2.Response:
    """Roll back the rules that were set at a time, by default the present ones."""
    shown = client.get("/v1/rules").json()["since"] if since is None else since
    return client.post("/v1/rules/rollback", json={"since": shown}, headers=ADMIN)


def under(client: TestClient, *rules: str, **body: Any) -> list[Any]:
    return ids(recommended(client, **{"k": 60, **body}, rules=rules))


def test_a_request_names_rules_whose_filters_and_caps_apply_beside_its_own(shop: TestClient) -> None:
    assert put(shop, late=LATE, even=EVEN, few={"cap": {"genres": 3}}).status_code == 200
    assert set(under(shop, "late")) == set(range(150, 160))
    assert set(under(shop, "late", "even", filter={"title": {"lt": "Item 156"}})) == {150, 152, 154}
    assert [len(under(shop, "few", cap={"genres": own})) for own in (2, 5)] == [2, 3]
    similar = shop.post("/v1/items/100/similar", json={"k": 60, "rules": ["late"]}).json()
    assert set(ids(similar)) == set(range(150, 160))
    batch = {"requests": [{"k": 60, "rules": ["late"]}, {"k": 60}]}
    found = shop.post("/v1/recommend/batch", json=batch).json()["results"]
    assert [len(answer["items"]) for answer in found] == [10, 60]


def test_the_values_of_a_rule_are_looked_up_once_for_all_requests(
    shop: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that names rules of thousands of values is small, and may have another filter each time."""
    put(shop, even=EVEN)
    looked_up: list[object] = []
    real = TermColumn.among

    def counted(self: TermColumn, values: Any) -> Any:
        looked_up.append(values)
        return real(self, values)

    monkeypatch.setattr(TermColumn, "among", counted)
    for last in range(151, 159):
        found = under(shop, "even", k=100, filter={"title": {"lte": f"Item {last}"}})
        assert len(found) == (last - 98) // 2
    assert len(looked_up) == 1


def test_pages_go_on_under_rules_but_not_under_caps(shop: TestClient) -> None:
    put(shop, late=LATE, few={"cap": {"genres": 3}})
    first = recommended(shop, history=[101], k=6, rules=["late"])
    second = under(shop, "late", history=[101], k=6, cursor=first["cursor"])
    assert sorted(ids(first) + second) == list(range(150, 160))
    refused = shop.post("/v1/recommend", json={"history": [101], "rules": ["few"], "cursor": first["cursor"]})
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "cursor")


def test_rules_are_shown_replaced_and_rolled_back(shop: TestClient) -> None:
    assert shop.get("/v1/rules").json() == {"rules": {}, "since": None, "who": None}
    put(shop, late=LATE)
    put(shop, even=EVEN)
    shown = shop.get("/v1/rules").json()
    assert shown["rules"] == {"even": {**UNSAID, **EVEN}}
    assert shown["who"] == "admin"
    unknown = shop.post("/v1/recommend", json={"rules": ["late"]})
    assert unknown.status_code == 409
    assert "there is no such rule; there are: even" in unknown.json()["error"]["message"]
    back = rolled_back(shop).json()
    assert (list(back["rules"]), back["who"]) == (["late"], "admin (rollback)")
    assert list(rolled_back(shop).json()["rules"]) == ["even"]


def test_changes_that_a_proxy_repeats_are_made_once(shop: TestClient) -> None:
    """A rollback names the rules that it replaces; rules that are set already leave those before them."""
    put(shop, late=LATE)
    before = shop.get("/v1/rules").json()["since"]
    change = {"rules": {"even": EVEN}, "since": before}
    answers = [shop.put("/v1/rules", json=change, headers=ADMIN).json() for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    since = answers[0]["since"]
    answers = [rolled_back(shop, since).json() for _ in range(4)]
    assert answers == [{**answers[0], "rules": {"late": {**UNSAID, **LATE}}}] * 4
    for wrong in (before, "yesterday"):
        refused = rolled_back(shop, wrong)
        assert (refused.status_code, refused.json()["error"]["field"]) == (409, "since")
    assert shop.post("/v1/rules/rollback", json={}, headers=ADMIN).status_code == 422
    assert list(rolled_back(shop).json()["rules"]) == ["even"]


def test_a_change_after_somebody_elses_is_refused_where_that_is_asked(shop: TestClient) -> None:
    since = put(shop, late=LATE).json()["since"]
    change: dict[str, Any] = {"rules": {"even": EVEN}, "since": since}
    assert shop.put("/v1/rules", json=change, headers=ADMIN).status_code == 200
    change["rules"] = {"odd": EVEN}
    refused = shop.put("/v1/rules", json=change, headers=ADMIN)
    assert (refused.status_code, refused.json()["error"]["field"]) == (409, "since")


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        ({}, "rules.r"),
        ({"filter": {"colour": {"equals": "red"}}}, "rules.r.filter.colour"),
        ({"cap": {"colour": 3}}, "rules.r.cap.colour"),
        ({"cap": {"genres": 0}}, "rules.r.cap.genres"),
    ],
)
def test_a_rule_has_to_fit_the_live_version(shop: TestClient, rule: Any, field: str) -> None:
    put(shop, late=LATE)
    refused = put(shop, r=rule)
    assert refused.status_code == 422
    assert refused.json()["error"]["field"] == field
    assert list(shop.get("/v1/rules").json()["rules"]) == ["late"]


def test_rules_need_a_key_of_their_own(shop: TestClient) -> None:
    """Also while reading and writing need none."""
    for answer in (shop.put("/v1/rules", json={"rules": {"late": LATE}}), shop.post("/v1/rules/rollback")):
        assert answer.status_code == 401
        assert "a key of the scope rules" in answer.json()["error"]["message"]
    assert shop.get("/v1/rules").status_code == 200


def test_a_version_that_can_not_apply_a_rule_goes_live_only_by_force(shop: TestClient) -> None:
    put(shop, late=LATE)
    refused = activate(shop, "v2")
    assert refused.status_code == 409
    assert "can't apply the rule 'late'" in refused.json()["error"]["message"]
    assert shop.get("/v1/version").json()["version"] == "v1"
    canary = {"canary": {"version": "v2", "share": 0.5}}
    assert shop.post("/admin/routes", json=canary, headers=ADMIN).status_code == 409
    assert activate(shop, "v2", force=True).status_code == 200
    answer = shop.post("/v1/recommend", json={"rules": ["late"]})
    assert (answer.status_code, answer.json()["error"]["field"]) == (409, "rules")
    recommended(shop)
    put(shop)
    refused = rolled_back(shop)
    assert (refused.status_code, refused.json()["error"]["field"]) == (409, "rules")


def test_rules_survive_a_restart_and_an_activation(tmp_path: Path) -> None:
    publish(tmp_path, contents("v1"))
    publish(tmp_path, contents("v2", seed=1))
    with serving(tmp_path) as client:
        put(client, late=LATE)
        activate(client, "v2")
        assert list(client.get("/v1/rules").json()["rules"]) == ["late"]
    with serving(tmp_path) as client:
        assert len(under(client, "late")) == 10


def largest(word: str) -> dict[str, Any]:
    """Rules of just the size that is allowed."""

    def filled(*sizes: int) -> dict[str, Any]:
        return {f"{n}": {"filter": {"title": {"any_of": [word * size]}}} for n, size in enumerate(sizes)}

    rest = RULES_BYTES - len(RuleSet.model_validate({"rules": filled(*[0] * RULES)}).encoded())
    return filled(rest - rest // RULES * (RULES - 1), *[rest // RULES] * (RULES - 1))


def test_the_largest_rules_survive_a_restart_with_those_before_them(tmp_path: Path) -> None:
    publish(tmp_path, contents("v1"))
    publish(tmp_path, contents("v2", seed=1))
    with serving(tmp_path, body_limit=3_000_000) as client:
        activate(client, "v1")
        canary = {"canary": {"version": "v2", "share": 0.5}}
        assert client.post("/admin/routes", json=canary, headers=ADMIN).status_code == 200
        for word in "ab":
            assert put(client, **largest(word)).status_code == 200
        refused = put(client, **largest("c") | {"0": {"filter": {"title": {"any_of": ["c" * 20_000]}}}})
        assert (refused.status_code, refused.json()["error"]["field"]) == (422, "rules")
        assert f"send at most {RULES_BYTES}" in refused.json()["error"]["message"]
    with serving(tmp_path) as client:
        assert client.get("/v1/rules").json()["rules"]["0"]["filter"] == largest("b")["0"]["filter"]
        assert client.get("/admin/routes", headers=ADMIN).json()["canary"]["version"] == "v2"
        assert rolled_back(client).json()["rules"]["0"]["filter"] == largest("a")["0"]["filter"]
