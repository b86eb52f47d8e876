"""Who may call what: scopes, rates and wrong keys."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from tests.support.virtual_time import Clock
from turret.service.error_responses import write_error
from turret.service.http.access import Authentication
from turret.service.http.app import create_app
from turret.service.http.edge import Edge
from turret.service.keys.keys import Keyring, add_key, new_key, record
from turret.service.observing.metrics import Metrics
from turret.service.settings import Settings

ADMIN_KEY = "the-admin-key-of-32-characters-x"
WRONG = {"Authorization": "Bearer nobody"}
ADMIN = {"Authorization": f"Bearer {ADMIN_KEY}"}


async def answering(scope: Scope, receive: Receive, send: Send) -> None:
    await write_error(200, "nothing", None, "")(scope, receive, send)


class Keyed:
    """An application that requires keys, and the keys."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys.json"

    def key(self, name: str, *scopes: str, rate: float | None = None) -> dict[str, str]:
        made = new_key(name)
        add_key(self.path, record(name, made, scopes, rate=rate))
        return {"Authorization": f"Bearer {made}"}

    def client(self, **given: Any) -> TestClient:
        layer = Authentication(answering, Keyring(self.path, ADMIN_KEY), **given)
        return TestClient(Edge(layer, Metrics()))


@pytest.fixture
def keyed(tmp_path: Path) -> Keyed:
    return Keyed(tmp_path)


def test_without_keys_only_the_admin_calls_need_one(keyed: Keyed) -> None:
    calls = [
        ("/v1/recommend", {}),
        ("/v1/events", WRONG),
        ("/admin/activate", {}),
        ("/admin/activate", ADMIN),
    ]
    statuses = [keyed.client().post(path, headers=headers).status_code for path, headers in calls]
    assert statuses == [200, 200, 401, 200]


@pytest.mark.fault(26)
def test_each_call_needs_a_key_of_its_scope(keyed: Keyed) -> None:
    keys = [keyed.key(scope, scope) for scope in ("read", "write", "admin")]
    client = keyed.client()
    paths = ("/v1/recommend", "/v1/events", "/admin/rollback")
    for place, headers in enumerate((*keys, WRONG)):
        found = [client.post(path, headers=headers).status_code for path in paths]
        assert found == ([401] * 3 if headers is WRONG else [200 if n == place else 403 for n in range(3)])


def test_the_refusals_say_what_would_work(keyed: Keyed) -> None:
    read = keyed.key("shop", "read")
    client = keyed.client()
    missing = client.get("/v1/version")
    assert missing.headers["WWW-Authenticate"] == "Bearer"
    assert "key is missing" in missing.text
    assert "is wrong" in client.get("/v1/version", headers=WRONG).text
    assert (
        "requires the scope write, and the key shop has read" in client.post("/v1/events", headers=read).text
    )


def test_probes_are_open_and_metrics_if_the_operator_says_so(keyed: Keyed) -> None:
    read = keyed.key("shop", "read")
    assert [keyed.client().get(path).status_code for path in ("/livez", "/readyz", "/metrics")] == [200] * 3
    closed = keyed.client(metrics_open=False)
    assert closed.get("/metrics").status_code == 401
    assert closed.get("/metrics", headers=read).status_code == 200


def test_a_key_passes_as_often_as_its_rate_says(keyed: Keyed) -> None:
    often = keyed.key("often", "read", rate=0.08)
    client = keyed.client(share=4)
    assert client.get("/v1/version", headers=often).status_code == 200
    refused = client.get("/v1/version", headers=often)
    assert refused.status_code == 429
    assert 13 < int(refused.headers["Retry-After"]) <= 50, "the whole rate would be twelve seconds"
    assert "0.08 requests a second" in refused.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/%61dmin/activate", "/admin/activate/", "/admin/../admin/activate"])
def test_no_way_of_writing_the_path_goes_around_the_key(keyed: Keyed, path: str) -> None:
    assert keyed.client().post(path).status_code == 401


@pytest.mark.fault(36)
def test_a_body_of_who_has_no_key_is_not_read(keyed: Keyed, settings: Settings) -> None:
    keyed.key("shop", "read")
    app = create_app(settings.model_copy(update={"keys": keyed.path}))
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("the body is read")

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/recommend", "headers": [], "query_string": b""}
    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 401


def test_a_burst_passes_and_then_the_rate(keyed: Keyed) -> None:
    """A pause fills it up to the burst only."""
    shop, clock = keyed.key("shop", "read", rate=3), Clock()
    client, begun = keyed.client(clock=clock), clock.now

    def passes(seconds: float) -> bool:
        clock.now = begun + seconds
        return client.get("/v1/version", headers=shop).status_code == 200

    assert [passes(0) for _ in range(4)] == [True, True, True, False]
    assert [passes(second) for second in (0.3, 0.34, 0.34)] == [False, True, False]
    assert sum(passes(1000) for _ in range(50)) == 3
