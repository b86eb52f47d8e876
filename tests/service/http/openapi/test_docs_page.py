import re
from pathlib import Path

from fastapi.testclient import TestClient

from tests.support.described_shop import publish_described
from turret.service.http.app import create_app
from turret.service.http.openapi.docs_page import docs_page
from turret.service.http.openapi.document import whole
from turret.service.settings import Settings


def test_every_call_every_refusal_and_every_body_is_on_it() -> None:
    document = whole()
    written = docs_page(document)
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            assert f"<code>{method.upper()} {path}</code>" in written
            assert all(f"<code>{status}</code>" in written for status in call["responses"])
    assert all(f'id="{name}"' in written for name in document["components"]["schemas"])
    for words in ("up to 1000", "at least 1, at most 1000", "Needs a key of the scope write", "by default"):
        assert words in written


def test_every_link_leads_somewhere() -> None:
    written = docs_page(whole())
    targets = set(re.findall(r'id="(\w+)"', written))
    links = set(re.findall(r'href="#(\w+)"', written))
    assert links
    assert links <= targets


def test_names_of_fields_are_text_and_no_markup() -> None:
    document = whole()
    schema = document["components"]["schemas"]["Caps"]
    schema["properties"] = {"<script>alert(1)</script>": {"type": "integer"}}
    written = docs_page(document)
    assert "<script>" not in written
    assert "&lt;script&gt;" in written


def test_the_page_is_of_the_live_version(settings: Settings, tmp_path: Path) -> None:
    publish_described(tmp_path / "described")
    with TestClient(create_app(settings.model_copy(update={"bundles": tmp_path / "described"}))) as client:
        answer = client.get("/docs")
        assert client.head("/docs").status_code == 200
        assert client.get("/redoc").status_code == 404
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "<code>sizes</code>" in answer.text
