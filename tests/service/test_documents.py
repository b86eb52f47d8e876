import json
import re

from fastapi.testclient import TestClient


def test_the_documents_show_every_call_with_its_body(client: TestClient) -> None:
    described = client.get("/openapi.json").json()
    assert set(described["paths"]) >= {
        "/v1/recommend",
        "/v1/recommend/batch",
        "/v1/items/{item_id}/similar",
        "/v1/events",
        "/v1/users/{user_id}",
        "/v1/version",
        "/v1/versions",
        "/admin/activate",
        "/admin/rollback",
        "/livez",
        "/readyz",
        "/metrics",
    }
    fields = described["components"]["schemas"]["RecommendRequest"]["properties"]
    assert set(fields) == {
        *("user_id", "history", "history_times", "at", "features", "k", "exclude_seen", "exclude"),
        *("filter", "min_score", "diversity", "cap", "cursor", "min_version", "explain"),
    }


def test_every_reference_leads_somewhere(client: TestClient) -> None:
    described = client.get("/openapi.json").json()
    references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(described)))
    assert "RecommendRequest" in references
    assert references <= set(described["components"]["schemas"])


def test_there_is_a_page_to_read(client: TestClient) -> None:
    assert client.get("/docs").status_code == 200
