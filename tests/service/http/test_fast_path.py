import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from turret.service.http.app import create_app
from turret.service.settings import Settings


def test_each_stage_of_a_recommendation_is_timed(fresh_client: TestClient) -> None:
    for _ in range(2):
        assert fresh_client.post("/v1/recommend", json={"history": [101]}).status_code == 200
    text = fresh_client.get("/metrics").text
    for stage in ("parse", "history", "rows", "encode", "search", "answer"):
        assert f'turret_stage_seconds_count{{stage="{stage}"}} 2.0' in text


@pytest.mark.parametrize(
    ("body", "status"), [(b"{", 400), (b'{"k": 0}', 422), (b'{"history": [101], "user": 1}', 422)]
)
def test_what_is_refused_is_refused_in_the_words_of_the_route(
    fresh_client: TestClient, settings: Settings, monkeypatch: pytest.MonkeyPatch, body: bytes, status: int
) -> None:
    def ask(asked: TestClient) -> tuple[int, Any]:
        answer = asked.post("/v1/recommend", content=body, headers={"Content-Type": "application/json"})
        return answer.status_code, json.loads(answer.content)

    refused = ask(fresh_client)
    assert refused[0] == status
    monkeypatch.setattr("turret.service.http.fast_path.PATH", "/elsewhere")
    with TestClient(create_app(settings)) as by_route:
        assert ask(by_route) == refused
