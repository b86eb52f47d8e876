import re

import pytest
from fastapi.testclient import TestClient


@pytest.mark.parametrize("path", ["/livez", "/v1/users/7", "/nowhere", "/openapi.json", "/metrics"])
def test_an_answer_is_not_guessed_kept_framed_or_run(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert "Server" not in headers


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
def test_a_page_may_load_what_it_names_and_nothing_else(client: TestClient, path: str) -> None:
    answer = client.get(path)
    policy = answer.headers["Content-Security-Policy"]
    allowed = set(re.findall(r"https://[\w.-]+", policy))
    loaded = set(re.findall(r'(?:src|href)="(https://[\w.-]+)', answer.text))
    assert loaded
    assert loaded <= allowed
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["Referrer-Policy"] == "no-referrer"
