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


def test_the_page_loads_and_runs_nothing(client: TestClient) -> None:
    answer = client.get("/docs")
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline';")
    assert "frame-ancestors 'none'" in policy
    assert not re.findall(r"<script|<link|src=|https?://", answer.text)
    assert answer.headers["Referrer-Policy"] == "no-referrer"
