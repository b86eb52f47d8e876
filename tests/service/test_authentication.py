from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from service.authentication import Authentication
from service.key_file import add_key
from service.keyring import Keyring
from service.keys import new_key, record
from service.rate_limit import Buckets
from service.refusals import refuse

Client = Callable[..., TestClient]
WHO = {"Authorization": "Bearer nobody"}


async def answering(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers 200 and tells whose key came with the request."""
    key = scope.get("turret", {}).get("key")
    answer = refuse(200, "name", key.name if key else None, "")
    await answer(scope, receive, send)


class Keyed:
    """An application that only answers to keys, and what they are."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys.json"
        self.layer: Authentication | None = None

    def key(self, name: str, *scopes: str, rate: float | None = None) -> dict[str, str]:
        made = new_key(name)
        add_key(self.path, record(name, made, scopes, rate=rate))
        return {"Authorization": f"Bearer {made}"}

    def client(self, **given: object) -> TestClient:
        self.layer = Authentication(answering, Keyring(self.path, "the-admin-key"), **given)  # type: ignore[arg-type]
        return TestClient(self.layer)


@pytest.fixture
def keyed(tmp_path: Path) -> Keyed:
    return Keyed(tmp_path)


def test_without_keys_only_the_admin_calls_need_one(keyed: Keyed) -> None:
    client = keyed.client()
    assert client.post("/v1/recommend").status_code == 200
    assert client.post("/v1/events", headers=WHO).status_code == 200
    assert client.post("/admin/activate").status_code == 401
    admin = {"Authorization": "Bearer the-admin-key"}
    assert client.post("/admin/activate", headers=admin).status_code == 200


def test_a_key_opens_what_its_scopes_name(keyed: Keyed) -> None:
    read, write, admin = (keyed.key(name, name) for name in ("read", "write", "admin"))
    client = keyed.client()
    calls = [("GET", "/v1/version"), ("POST", "/v1/events"), ("POST", "/admin/activate")]
    statuses = [
        [client.request(method, path, headers=key).status_code for method, path in calls]
        for key in (read, write, admin)
    ]
    assert statuses == [[200, 403, 403], [403, 200, 403], [403, 403, 200]]


def test_the_refusals_say_what_would_work(keyed: Keyed) -> None:
    read = keyed.key("shop", "read")
    client = keyed.client()
    missing = client.get("/v1/version")
    assert missing.status_code == 401
    assert missing.headers["WWW-Authenticate"] == "Bearer"
    assert "key is missing" in missing.json()["error"]["message"]
    assert "is wrong" in client.get("/v1/version", headers=WHO).json()["error"]["message"]
    beyond = client.post("/v1/events", headers=read).json()["error"]["message"]
    assert "needs the scope write, and the key shop has read" in beyond
    assert keyed.layer is not None
    assert keyed.layer.refusals == {"missing": 1, "wrong": 1, "scope": 1}


def test_who_asks_is_told_to_the_application(keyed: Keyed) -> None:
    read = keyed.key("shop", "read")
    assert keyed.client().get("/v1/version", headers=read).json()["error"]["value"] == "shop"


def test_probes_are_open_and_metrics_if_the_operator_says_so(keyed: Keyed) -> None:
    read = keyed.key("shop", "read")
    assert [keyed.client().get(path).status_code for path in ("/livez", "/readyz", "/metrics")] == [200] * 3
    closed = keyed.client(metrics_open=False)
    assert closed.get("/metrics").status_code == 401
    assert closed.get("/metrics", headers=read).status_code == 200


def test_a_key_passes_as_often_as_its_rate_says(keyed: Keyed) -> None:
    """With four worker processes, a quarter of it in each."""
    often, other = keyed.key("often", "read", rate=0.08), keyed.key("other", "read")
    client = keyed.client(share=4)
    assert client.get("/v1/version", headers=often).status_code == 200
    refused = client.get("/v1/version", headers=often)
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) in (49, 50)
    assert "0.08 times a second" in refused.json()["error"]["message"]
    assert client.get("/v1/version", headers=other).status_code == 200


def test_wrong_keys_are_told_to_slow_down_and_the_right_one_still_passes(keyed: Keyed) -> None:
    """Behind a proxy one address is everybody; nobody may lock the others out."""
    read = keyed.key("shop", "read")
    client = keyed.client()
    statuses = [client.get("/v1/version", headers=WHO).status_code for _ in range(30)]
    assert statuses[:20] == [401] * 20
    assert statuses[-1] == 429
    assert client.get("/v1/version", headers=read).status_code == 200


def test_an_address_of_version_six_is_its_network(keyed: Keyed) -> None:
    keyed.key("shop", "read")
    wrong = Buckets(100)
    layer = keyed.client(wrong=wrong).app
    for last in range(30):
        TestClient(layer, client=(f"2001:db8:1:2::{last:x}", 1)).get("/v1/version", headers=WHO)
    assert len(wrong) == 1


def test_the_admin_calls_are_not_here_if_they_have_a_port(keyed: Keyed) -> None:
    admin = keyed.key("boss", "admin")
    answer = keyed.client(admin_here=False).post("/admin/activate", headers=admin)
    assert answer.status_code == 404
    assert "--admin-port" in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/%61dmin/activate", "/admin/activate/", "/admin/../admin/activate"])
def test_no_way_of_writing_the_path_goes_around_the_key(keyed: Keyed, path: str) -> None:
    assert keyed.client().post(path).status_code == 401


def test_no_answer_holds_a_key(keyed: Keyed) -> None:
    read = keyed.key("shop", "read")
    secret = read["Authorization"].rsplit("_", 1)[-1]
    client = keyed.client()
    for change in (read["Authorization"][:-1], read["Authorization"] + "x", read["Authorization"]):
        answer = client.post("/v1/events", headers={"Authorization": change})
        assert secret[:-1] not in answer.text
        assert orjson.loads(answer.content)["error"]["value"] is None
