import gzip

import pytest
from fastapi.testclient import TestClient

from turret.service.http.app import create_admin_app, create_app
from turret.service.keys.key_file import add_key
from turret.service.keys.keys import new_key, record
from turret.service.page.assets import page_assets
from turret.service.settings import Settings


def test_the_start_page_is_checked_again_and_its_files_are_kept(fresh_client: TestClient) -> None:
    page = fresh_client.get("/")
    assert page.status_code == 200
    assert page.headers["Content-Type"].startswith("text/html")
    assert page.headers["Cache-Control"] == "no-cache"
    for name, asset in page_assets().files.items():
        answer = fresh_client.get(f"/page/{name}")
        assert answer.content == asset.content
        assert answer.headers["Content-Type"] == asset.media_type
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_a_client_that_reads_no_gzip_gets_plain_files(fresh_client: TestClient) -> None:
    plain = fresh_client.get("/", headers={"Accept-Encoding": "identity"})
    packed = fresh_client.get("/", headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == "gzip"
    assert plain.content == packed.content == gzip.decompress(page_assets().index.compressed or b"")


@pytest.mark.parametrize("path", ["x.js", "../settings.py", "%2e%2e/assets.py", "a%0Ab", ""])
def test_a_file_that_the_page_does_not_have_is_not_found(fresh_client: TestClient, path: str) -> None:
    answer = fresh_client.get(f"/page/{path}")
    assert answer.status_code == 404


def test_the_page_can_be_switched_off(settings: Settings) -> None:
    with TestClient(create_app(settings.model_copy(update={"page": False}))) as client:
        for path in ("/", "/page/settings.json"):
            assert client.get(path).status_code == 404
        assert client.get("/v1/fields").status_code == 200


def test_the_page_needs_no_key_and_its_data_do(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    add_key(settings.keys, record("shop", new_key("shop"), ("read",)))
    with TestClient(create_app(settings)) as client:
        assert client.get("/").status_code == 200
        assert client.get("/page/settings.json").json()["keys_required"] is True
        for path in ("/v1/items", "/v1/fields", "/v1/map", "/v1/activations", "/metrics/recent"):
            assert client.get(path).status_code == 401, path


def test_the_page_knows_where_the_admin_calls_are(settings: Settings) -> None:
    app = create_app(settings.model_copy(update={"admin_port": 8001}))
    with (
        TestClient(app, base_url="http://localhost:8000") as client,
        TestClient(create_admin_app(app)) as admin,
    ):
        here = client.get("/page/settings.json").json()
        assert (here["admin_here"], here["admin_url"]) == (False, "http://localhost:8001/")
        there = admin.get("/page/settings.json").json()
        assert (there["admin_here"], there["admin_url"]) == (True, None)
        assert here["keys_required"] is False
        assert here["pictures"] == []
