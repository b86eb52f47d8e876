import gzip

import pytest
from fastapi.testclient import TestClient

JSON = {"Content-Type": "application/json"}


def status(client: TestClient, headers: dict[str, str], body: bytes = b"{}") -> int:
    answer = client.post("/v1/recommend", content=body, headers=headers)
    if answer.status_code == 415:
        assert answer.json()["error"]["field"] in ("Content-Type", "Content-Encoding")
    return answer.status_code


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=utf-8", "application/x+json"]
)
def test_json_is_read_however_it_is_written(fresh_client: TestClient, kind: str) -> None:
    assert status(fresh_client, {"Content-Type": kind}) == 200


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "a", "text/json"],
)
def test_what_any_web_page_can_send_is_refused(fresh_client: TestClient, kind: str) -> None:
    assert status(fresh_client, {"Content-Type": kind}) == 415


def test_a_body_of_no_type_is_a_programs_and_not_a_web_pages(fresh_client: TestClient) -> None:
    assert status(fresh_client, {}) == 200
    assert status(fresh_client, {"Origin": "http://example.com"}) == 415
    assert status(fresh_client, {"Origin": "http://example.com", **JSON}) == 200


@pytest.mark.parametrize("packing", ["gzip", "br", "deflate, gzip", "GZIP"])
def test_packed_bodies_are_refused_unread(fresh_client: TestClient, packing: str) -> None:
    bomb = gzip.compress(bytes(10_000_000))
    assert status(fresh_client, {"Content-Encoding": packing, **JSON}, bomb) == 415


def test_a_body_that_is_not_packed_may_say_so(fresh_client: TestClient) -> None:
    assert status(fresh_client, {"Content-Encoding": "identity", **JSON}) == 200


def test_calls_without_a_body_are_left_alone(fresh_client: TestClient) -> None:
    assert fresh_client.get("/livez", headers={"Content-Type": "text/plain"}).status_code == 200
