"""The page: its files, their headers, what it knows of its service, and which hosts it may ask."""

import gzip
import hashlib
from typing import Any

import pytest
from fastapi.testclient import TestClient

from deploy.vendored import FOLDER, PACKAGES
from tests.support.service_app import client_of
from turret.service.errors import ServiceError
from turret.service.http.app import create_app
from turret.service.http.routes.page import STATIC, admin_url
from turret.service.settings import Settings, read_settings

OURS = [path for path in STATIC.rglob("*") if path.is_file() and "vendored" not in path.parts]


def test_every_file_of_the_page_is_asked_for_again_and_not_sent_again(client: TestClient) -> None:
    """A release replaces all of them at once."""
    for path in ("index.html", *(path.relative_to(STATIC).as_posix() for path in OURS)):
        url = "/" if path == "index.html" else f"/page/{path}"
        answer = client.get(url)
        assert answer.content == (STATIC / path).read_bytes()
        assert answer.headers["Cache-Control"] == "no-cache"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        again = client.get(url, headers={"If-None-Match": answer.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b"")
    assert client.get("/").headers["Content-Type"].startswith("text/html")
    assert "javascript" in client.get("/page/app/main.js").headers["Content-Type"]


@pytest.mark.parametrize("name", ["x.js", "../__init__.py", "%2e%2e/__init__.py", "a%0Ab", "%00", ""])
def test_no_other_file_is_sent(client: TestClient, name: str) -> None:
    answer = client.get(f"/page/{name}")
    assert (answer.status_code, answer.json()["error"]["field"]) == (404, "path")


def test_the_page_can_be_switched_off(settings: Settings) -> None:
    with client_of(settings.model_copy(update={"page": False})) as client:
        for path in ("/", "/page/settings.json"):
            assert client.get(path).status_code == 404
        assert client.get("/v1/fields").status_code == 200


def test_the_page_knows_where_the_admin_calls_are(settings: Settings) -> None:
    app = create_app(settings.model_copy(update={"admin_port": 8001}))
    with TestClient(app, base_url="http://localhost:8000") as client:
        admin = TestClient(app, base_url="http://localhost:8001")
        here = client.get("/page/settings.json").json()
        assert (here["admin_here"], here["admin_url"]) == (False, "http://localhost:8001/")
        there = admin.get("/page/settings.json").json()
        assert (there["admin_here"], there["admin_url"]) == (True, None)
        assert here["keys_required"] is False
        assert here["pictures"] == []


@pytest.mark.parametrize(
    ("settings", "hostname", "url"),
    [
        ({}, "::1", "http://[::1]:8001/"),
        ({}, "shop.example", None),
        ({}, "", None),
        ({"admin_host": "0.0.0.0"}, "shop.example", "http://shop.example:8001/"),
        ({"admin_port": 9000}, "localhost", "http://localhost:9000/"),
        ({"admin_port": 0}, "localhost", None),
        ({"admin_port": "same"}, "localhost", None),
    ],
)
def test_the_admin_port_is_named_to_those_who_can_reach_it(
    settings: dict[str, Any], hostname: str, url: str | None
) -> None:
    assert admin_url(read_settings(port=8000, **settings), hostname) == url


def test_the_page_loads_from_its_service_and_from_allowed_origins_of_pictures(settings: Settings) -> None:
    pictures = {"page_pictures": ("https://img.example.com",)}
    with client_of(settings.model_copy(update=pictures)) as client:
        policy = client.get("/").headers["Content-Security-Policy"]
    sources = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert sources.pop("img-src") == "'self' data: https://img.example.com"
    for name in ("script-src", "style-src", "font-src", "connect-src"):
        assert sources.pop(name) == "'self'"
    assert sources == dict.fromkeys(("default-src", "base-uri", "form-action", "frame-ancestors"), "'none'")


def test_origins_of_pictures_are_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURRET_PAGE_PICTURES", "https://img.example.com, http://127.0.0.1:9000")
    assert read_settings().page_pictures == ("https://img.example.com", "http://127.0.0.1:9000")
    assert read_settings(page_pictures="").page_pictures == ()


@pytest.mark.parametrize(
    "text", ["img.example.com", "https://img.example.com/a", "https://a; script-src *", "*", "'self'"]
)
def test_no_origin_can_loosen_the_policy(text: str) -> None:
    with pytest.raises(ServiceError, match="is not an origin; send scheme and host"):
        read_settings(page_pictures=text)


# ---- Files


def test_all_files_of_the_page_together_are_small() -> None:
    sent = (path for path in STATIC.rglob("*") if path.is_file() and path.suffix != ".md")
    assert sum(len(gzip.compress(path.read_bytes())) for path in sent) < 200_000


def test_every_third_party_file_is_stored_unchanged_and_listed_with_its_hash_and_licence() -> None:
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    rows = {line.split("`")[1]: line for line in readme.splitlines() if line.startswith("| `")}
    names = {name for package in PACKAGES for name in package.files.values()}
    assert names == rows.keys() == {path.name for path in FOLDER.iterdir()} - {"README.md"}
    for package in PACKAGES:
        assert any("LICENSE" in name for name in package.files.values()), package.name
        for name in package.files.values():
            assert f"{package.name} {package.version}" in rows[name]
            assert package.licence in rows[name]
            assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() in rows[name]
