"""Who may call what: scopes, rates, wrong keys, guesses, and the admin key's file."""

import logging
import os
from pathlib import Path

import orjson
import pytest
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from tests.support.tools import require
from turret.service.auth.access import needed_scope
from turret.service.auth.admin_key import AdminKeyWatch, admin_key
from turret.service.auth.authentication import Authentication
from turret.service.auth.guesses import ADDRESS_BURST, TOTAL_BURST, TOTAL_RATE, Guesses, network_of
from turret.service.auth.keyring import Keyring
from turret.service.auth.rate_limit import Bucket, Buckets
from turret.service.error_responses import refuse
from turret.service.errors import ServiceError
from turret.service.keys.key_file import add_key
from turret.service.keys.keys import new_key, record
from turret.service.settings import Settings

WHO = {"Authorization": "Bearer nobody"}
ADMIN = {"Authorization": "Bearer the-admin-key"}  # a key that somebody chose


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


# ---- Scopes


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/admin", "admin"),
        ("GET", "/docs", None),
        ("POST", "/v1/something/new", "write"),
        ("GET", "/v1/something/new", "read"),
        ("GET", "/v1/users/u/history", "write"),
        *(("GET", path, "read") for path in ("/livez/", "//livez", "/v1/../livez", "/LIVEZ", "/docs/x")),
    ],
)
def test_a_path_without_a_rule_is_closed(method: str, path: str, scope: str | None) -> None:
    """Also one that only looks like an open one; stored data of users is not for keys that read."""
    assert needed_scope(method, path) == scope


async def answering(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers 200 with the name of the request's key."""
    key = scope.get("turret", {}).get("key")
    answer = refuse(200, "name", key.name if key else None, "")
    await answer(scope, receive, send)


class Keyed:
    """An application that requires keys, and the keys."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys.json"
        self.layer = Authentication(answering, Keyring(self.path, "the-admin-key"))

    def key(self, name: str, *scopes: str, rate: float | None = None) -> dict[str, str]:
        made = new_key(name)
        add_key(self.path, record(name, made, scopes, rate=rate))
        return {"Authorization": f"Bearer {made}"}

    def client(self, **given: object) -> TestClient:
        self.layer = Authentication(answering, Keyring(self.path, "the-admin-key"), **given)  # type: ignore[arg-type]
        return TestClient(self.layer)

    def admits(self, method: str, path: str, headers: dict[str, str]) -> bool:
        coded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": method, "path": path, "headers": coded, "client": ("192.0.2.1", 1)}
        return self.layer.is_admissible(scope)


@pytest.fixture
def keyed(tmp_path: Path) -> Keyed:
    return Keyed(tmp_path)


def test_without_keys_only_the_admin_calls_need_one(keyed: Keyed) -> None:
    client = keyed.client()
    assert client.post("/v1/recommend").status_code == 200
    assert client.post("/v1/events", headers=WHO).status_code == 200
    assert client.post("/admin/activate").status_code == 401
    assert client.post("/admin/activate", headers=ADMIN).status_code == 200


def test_a_key_opens_what_its_scopes_name_and_is_told_to_the_application(keyed: Keyed) -> None:
    read, write, admin = (keyed.key(name, name) for name in ("read", "write", "admin"))
    client = keyed.client()
    calls = [("GET", "/v1/version"), ("POST", "/v1/events"), ("POST", "/admin/activate")]
    statuses = [
        [client.request(method, path, headers=key).status_code for method, path in calls]
        for key in (read, write, admin)
    ]
    assert statuses == [[200, 403, 403], [403, 200, 403], [403, 403, 200]]
    assert client.get("/v1/version", headers=read).json()["error"]["value"] == "read"


def test_the_refusals_say_what_would_work(keyed: Keyed) -> None:
    read = keyed.key("shop", "read")
    client = keyed.client()
    missing = client.get("/v1/version")
    assert missing.status_code == 401
    assert missing.headers["WWW-Authenticate"] == "Bearer"
    assert "key is missing" in missing.json()["error"]["message"]
    assert "is wrong" in client.get("/v1/version", headers=WHO).json()["error"]["message"]
    beyond = client.post("/v1/events", headers=read).json()["error"]["message"]
    assert "requires the scope write, and the key shop has read" in beyond
    assert keyed.layer.refusals == {"missing": 1, "wrong": 1, "scope": 1}


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
    assert 13 < int(refused.headers["Retry-After"]) <= 50, "the whole rate would be twelve seconds"
    assert "0.08 requests a second" in refused.json()["error"]["message"]
    assert client.get("/v1/version", headers=other).status_code == 200


def test_wrong_keys_are_told_to_slow_down_and_the_right_one_still_passes(keyed: Keyed, clock: Clock) -> None:
    """Behind a proxy one address is everybody; nobody may lock the others out."""
    read = keyed.key("shop", "read")
    client = keyed.client(wrong=Guesses(clock))
    statuses = [client.get("/v1/version", headers=WHO).status_code for _ in range(30)]
    assert statuses == [401] * 20 + [429] * 10
    assert client.get("/v1/version", headers=read).status_code == 200


def test_beyond_its_guesses_an_address_gets_no_chosen_key_compared(keyed: Keyed, clock: Clock) -> None:
    """Not the right one either; a long one is, and other addresses aren't concerned."""
    read = keyed.key("shop", "read")
    client = keyed.client(wrong=Guesses(clock))
    elsewhere = TestClient(client.app, client=("192.0.2.7", 1))
    assert client.post("/admin/activate", headers=ADMIN).status_code == 200
    assert [client.post("/admin/activate", headers=WHO).status_code for _ in range(20)] == [401] * 20
    refused = client.post("/admin/activate", headers=ADMIN)
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) >= 1
    assert client.get("/v1/version", headers=read).status_code == 200
    assert elsewhere.post("/admin/activate", headers=ADMIN).status_code == 200


def test_a_request_is_admissible_whose_key_will_be_let_in(keyed: Keyed) -> None:
    assert keyed.admits("POST", "/v1/events", {}), "without keys all but the admin calls are open"
    read, write, boss = keyed.key("reader", "read"), keyed.key("writer", "write"), keyed.key("boss", "admin")
    wrong = {"Authorization": f"Bearer {new_key('reader')}"}
    basic = {"Authorization": "Basic YTpi"}
    keyed.client(admin_here=False)
    assert keyed.admits("POST", "/v1/recommend", read)
    for headers in (write, boss, wrong, {}, WHO, ADMIN, basic):
        assert not keyed.admits("POST", "/v1/recommend", headers)
    assert keyed.admits("POST", "/v1/events", write)
    assert not keyed.admits("POST", "/admin/activate", boss)
    assert all(keyed.admits("GET", path, {}) for path in ("/livez", "/readyz", "/docs", "/metrics"))
    keyed.client(metrics_open=False)
    assert keyed.admits("POST", "/admin/activate", boss)
    assert not keyed.admits("GET", "/metrics", {})


def test_asking_whether_a_request_is_admissible_is_no_guess(keyed: Keyed) -> None:
    """It counts nothing, so the right one of the chosen keys is no more admissible than a wrong one."""
    for headers in ({}, ADMIN, WHO):
        assert not keyed.admits("POST", "/admin/activate", headers)
    slow = keyed.key("slow", "read", rate=0.01)
    client = keyed.client()
    for _ in range(100):
        keyed.admits("POST", "/v1/recommend", slow)
        keyed.admits("POST", "/v1/recommend", WHO)
    assert not keyed.layer.refusals
    assert client.get("/v1/version", headers=slow).status_code == 200
    assert client.get("/v1/version", headers=WHO).status_code == 401


@pytest.mark.parametrize("path", ["/%61dmin/activate", "/admin/activate/", "/admin/../admin/activate"])
def test_no_way_of_writing_the_path_goes_around_the_key(keyed: Keyed, path: str) -> None:
    assert keyed.client().post(path).status_code == 401


def test_no_answer_holds_a_key(keyed: Keyed) -> None:
    read = keyed.key("shop", "read")["Authorization"]
    client = keyed.client()
    for given in (read[:-1], read + "x", read):
        answer = client.post("/v1/events", headers={"Authorization": given})
        assert read.removeprefix("Bearer turret_shop_")[:-1] not in answer.text
        assert orjson.loads(answer.content)["error"]["value"] is None


# ---- Rates


def test_a_burst_passes_and_then_the_rate() -> None:
    bucket = Bucket(rate=10, burst=3, now=0.0)
    assert [bucket.take(0.0) for _ in range(3)] == [0, 0, 0]
    assert bucket.take(0.0) == pytest.approx(0.1)
    assert bucket.take(0.05) == pytest.approx(0.05)
    assert bucket.take(0.1) == 0
    assert bucket.take(0.1) > 0
    assert sum(not bucket.take(1000.0) for _ in range(50)) == 3, "a pause fills it up to the burst only"


def test_asking_too_early_costs_nothing() -> None:
    """Else a client that asks often would never be let through."""
    bucket = Bucket(rate=1, burst=1, now=0.0)
    passed = [at for at in range(1000) if not bucket.take(at / 100)]
    assert len(passed) == 10


def test_each_name_has_its_own_and_another_rate_begins_anew() -> None:
    buckets = Buckets(10, clock=lambda: 0.0)
    assert not buckets.take("a", 1, 1)
    assert buckets.take("a", 1, 1)
    assert not buckets.take("b", 1, 1)
    assert not buckets.take("a", 2, 1)


def test_a_crowd_stays_within_the_limit_and_drops_the_longest_unused() -> None:
    buckets = Buckets(3, clock=lambda: 0.0)
    for name in "abc":
        buckets.take(name, 1, 1)
    assert buckets.take("a", 1, 1)
    buckets.take("d", 1, 1)
    assert len(buckets) == 3
    assert buckets.take("a", 1, 1)
    assert not buckets.take("b", 1, 1)


# ---- Guesses of keys that people choose


CHOSEN, LONG = b"correct-horse-battery", b"F1phJKeIQ-TUJ0uHM6snqed5DWvmJ3ooQaaXesQQUqw"
NAMED = b"turret_shop_" + LONG


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:0db8:0001:0002::9", "2001:db8:1:2::/64"),
        ("2001:db8::1", "2001:db8::/64"),
        ("::1", "::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::ffff:c000:201", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::/64"),
        *((host, "") for host in ("", "localhost", "1.2.3.4.5", "x" * 10_000, "2001:db8::1::2", "[::1]")),
    ],
)
def test_a_network_is_an_address_or_a_64th_of_version_six(host: str, network: str) -> None:
    assert network_of(host) == network


def test_an_address_has_twenty_guesses_and_then_one_a_second(clock: Clock) -> None:
    guesses = Guesses(clock)
    for _ in range(int(ADDRESS_BURST)):
        assert guesses.wait(CHOSEN, "a") == 0
        assert guesses.count(CHOSEN, "a") == 0
    assert 0 < guesses.wait(CHOSEN, "a") <= 1
    assert guesses.wait(CHOSEN, "b") == 0
    clock.now = 1.0
    assert guesses.wait(CHOSEN, "a") == 0
    assert guesses.count(CHOSEN, "a") == 0
    assert guesses.wait(CHOSEN, "a") > 0


@pytest.mark.parametrize("key", [LONG, NAMED], ids=["long", "named"])
def test_a_long_key_never_waits_to_be_compared_but_its_sender_is_told_to(clock: Clock, key: bytes) -> None:
    guesses = Guesses(clock)
    waits = [guesses.count(key, "a") for _ in range(30)]
    assert waits[:20] == [0] * 20
    assert min(waits[20:]) > 0
    assert guesses.wait(key, "a") == 0


def test_a_short_secret_is_not_long_by_its_name(clock: Clock) -> None:
    guesses = Guesses(clock)
    key = b"turret_" + b"n" * 40 + b"_sixteen-letters-"
    for _ in range(20):
        guesses.count(key, "a")
    assert guesses.wait(key, "a") > 0


def test_all_addresses_together_have_few_guesses(clock: Clock) -> None:
    """However many of them there are; the longest unused are forgotten, and looking remembers nothing."""
    guesses = Guesses(clock, addresses=100)
    for number in range(1000):
        assert guesses.wait(CHOSEN, f"a{number % 10}") == 0
    assert len(guesses) == 0
    compared = 0
    for number in range(3000):
        clock.now += 0.01
        if not guesses.wait(CHOSEN, f"a{number}"):
            compared += 1
            guesses.count(CHOSEN, f"a{number}")
    assert TOTAL_BURST <= compared <= TOTAL_BURST + TOTAL_RATE * clock.now + 1
    assert len(guesses) <= 100


# ---- The admin key


@pytest.fixture
def keyless(tmp_path: Path) -> Settings:
    return Settings(bundles=tmp_path)


@pytest.fixture
def key_file(keyless: Settings) -> Path:
    return keyless.bundles / "admin.key"


def test_a_key_is_made_once_for_its_owner_only(keyless: Settings, key_file: Path) -> None:
    key = admin_key(keyless)
    assert key_file.read_text().strip() == key
    assert len(key) >= 32
    assert key_file.stat().st_mode & 0o777 == 0o600
    assert admin_key(keyless) == key


def test_the_key_may_be_in_the_environment_or_in_a_file_elsewhere(
    tmp_path: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "elsewhere.key"
    key = admin_key(Settings(bundles=tmp_path, admin_key_file=path))
    assert path.read_text().strip() == key
    monkeypatch.setenv("TURRET_ADMIN_KEY", "mine-and-of-sixteen")
    assert admin_key(Settings(bundles=tmp_path, admin_key_file=path)) == "mine-and-of-sixteen"
    assert not key_file.exists()


def test_a_folder_without_a_place_for_a_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="TURRET_ADMIN_KEY"):
        admin_key(Settings(bundles=tmp_path / "missing"))


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("\n", "is empty"),
        ("4711", "fewer than 16"),
        ("sixteen letters!", "a blank"),
        ("x" * 1000, "too long"),
    ],
)
def test_a_key_that_can_not_be_used_is_refused_and_not_shown(
    keyless: Settings, key_file: Path, key: str, words: str
) -> None:
    key_file.write_text(key)
    key_file.chmod(0o600)
    with pytest.raises(ServiceError, match=words) as caught:
        admin_key(keyless)
    assert key not in str(caught.value)


@pytest.mark.parametrize("mode", [0o644, 0o620, 0o604])
def test_a_file_that_others_may_read_or_write_is_refused(
    keyless: Settings, key_file: Path, mode: int
) -> None:
    admin_key(keyless)
    key_file.chmod(mode)
    with pytest.raises(ServiceError, match=rf"open to other users \(mode {mode:04o}\)"):
        admin_key(keyless)


def test_a_file_of_another_user_is_refused(keyless: Settings, key_file: Path) -> None:
    require("root")
    admin_key(keyless)
    os.chown(key_file, 12345, -1)
    with pytest.raises(ServiceError, match="belongs to user 12345"):
        admin_key(keyless)


@pytest.mark.parametrize("kind", ["link", "link to nothing", "folder", "pipe"])
def test_what_is_no_regular_file_is_refused_at_once(keyless: Settings, key_file: Path, kind: str) -> None:
    target = key_file.with_name("target")
    if kind == "folder":
        key_file.mkdir()
    elif kind == "pipe":
        os.mkfifo(key_file, 0o600)
    else:
        key_file.symlink_to(target)
        if kind == "link":
            target.write_text("planted" * 8)
            target.chmod(0o600)
    with pytest.raises(ServiceError, match="TURRET_ADMIN_KEY"):
        admin_key(keyless)


@pytest.mark.parametrize("change", ["another key", "gone", "mode", "nothing"])
def test_a_file_that_changes_is_complained_of_once(
    keyless: Settings, key_file: Path, clock: Clock, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    key = admin_key(keyless)
    watch = AdminKeyWatch(keyless, key, clock)
    if change == "another key":
        key_file.write_text("planted" * 8)
    elif change == "gone":
        key_file.unlink()
    elif change == "mode":
        key_file.chmod(0o644)
    else:
        os.utime(key_file)
    with caplog.at_level(logging.ERROR, "turret.keys"):
        watch.check()
        assert not caplog.messages  # it looks once a second
        for clock.now in (1.0, 2.0, 3.0):
            watch.check()
    assert len(caplog.messages) == (change != "nothing")
    assert key not in caplog.text
