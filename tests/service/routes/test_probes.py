from fastapi.testclient import TestClient


def test_probes_answer(client: TestClient) -> None:
    assert client.get("/livez").json() == {"status": "alive"}
    assert client.get("/readyz").json() == {"status": "ready", "version": "v1"}


def test_metrics_are_in_the_text_format(client: TestClient) -> None:
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "# TYPE turret_requests_total counter" in answer.text
