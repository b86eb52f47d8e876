import re

import pytest
from fastapi.testclient import TestClient

from turret.service.http.app import create_app
from turret.service.settings import Settings


@pytest.mark.parametrize("path", ["/livez", "/v1/users/7", "/nowhere", "/openapi.json", "/metrics"])
def test_an_answer_is_not_guessed_kept_framed_or_run(fresh_client: TestClient, path: str) -> None:
    headers = fresh_client.get(path).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert "Server" not in headers


def test_the_page_loads_from_its_service_and_from_allowed_origins_of_pictures(settings: Settings) -> None:
    pictures = {"page_pictures": ("https://img.example.com",)}
    with TestClient(create_app(settings.model_copy(update=pictures))) as client:
        policy = client.get("/").headers["Content-Security-Policy"]
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "font-src": "'self'",
        "img-src": "'self' data: https://img.example.com",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }


def test_the_docs_load_and_run_nothing(fresh_client: TestClient) -> None:
    answer = fresh_client.get("/docs")
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline';")
    assert "frame-ancestors 'none'" in policy
    assert not re.findall(r"<script|<link|src=|https?://", answer.text)
    assert answer.headers["Referrer-Policy"] == "no-referrer"
