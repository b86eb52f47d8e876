import pytest
from fastapi.testclient import TestClient

from turret.service.error_responses import refused
from turret.service.errors import RequestError


@pytest.mark.parametrize(
    ("method", "path", "status", "field"),
    [
        ("GET", "/nowhere", 404, "path"),
        ("GET", "/v1/recommend", 405, "method"),
        ("PUT", "/v1/events", 405, "method"),
        ("GET", "/" + "x" * 5000, 404, "path"),
        ("GET", "/%ff%00", 404, "path"),
    ],
)
def test_every_refusal_has_one_shape(
    fresh_client: TestClient, method: str, path: str, status: int, field: str
) -> None:
    answer = fresh_client.request(method, path)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"field", "value", "message"}
    assert answer.json()["error"]["field"] == field
    assert len(answer.content) < 600


def test_a_method_that_is_not_allowed_is_answered_with_those_that_are(fresh_client: TestClient) -> None:
    assert fresh_client.get("/v1/recommend").headers["allow"] == "POST"


def test_a_fault_of_the_service_has_the_same_shape_and_tells_no_details(
    fresh_client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turret.service.http.routes.versions.checked_versions", None)
    answer = fresh_client.get("/v1/versions")
    assert answer.status_code == 500
    assert answer.json()["error"]["field"] == "path"
    assert "NoneType" not in answer.text


@pytest.mark.parametrize(
    "body",
    [
        {"user_id": ["x" * 900_000]},
        {"k": "x" * 900_000},
        {"x" * 900_000: 1},
        {"features": {"x" * 900_000: 1}},
        {"history": [{"deep": [[[[["x"] * 1000]]]]}]},
    ],
)
def test_what_was_sent_is_not_sent_back_whole(fresh_client: TestClient, body: dict[str, object]) -> None:
    answer = fresh_client.post("/v1/recommend", json=body)
    assert answer.status_code == 422
    assert len(answer.content) < 2000


def _subclasses(kind: type[RequestError]) -> set[type[RequestError]]:
    return {kind}.union(*map(_subclasses, kind.__subclasses__()))


@pytest.mark.parametrize("kind", sorted(_subclasses(RequestError) - {RequestError}, key=str))
def test_every_reason_to_refuse_a_request_has_a_status(kind: type[RequestError]) -> None:
    assert 400 <= refused(kind("field", None, "a message")).status_code < 600
