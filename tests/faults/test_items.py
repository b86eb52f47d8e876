"""An item that is withdrawn, or comes, after the index was built: in the real process."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.conftest import contents
from tests.support.item_towers import placed, with_item_tower
from tests.support.service_process import Process, Start, plain_client
from turret.tower.bundle.publish import publish

FEATURES = {"features": placed(contents().item_vectors[1])}  # where item 101 is


def fresh_connections(service: Process, count: int = 24) -> Iterator[httpx2.Client]:
    """Clients that connect anew, so that the system spreads them over the workers."""
    for _ in range(count):
        with plain_client(service.urls[0]) as client:
            yield client


def answer(client: httpx2.Client, **body: Any) -> list[int]:
    found = client.post("/v1/recommend", json={"k": 61, **body})
    assert found.status_code == 200, found.text
    return [item["id"] for item in found.json()["items"]]


def everywhere(client: httpx2.Client) -> list[list[int]]:
    """By the towers, by popularity, and near an item."""
    similar = client.get("/v1/items/105/similar?k=61")
    return [answer(client, history=[105]), answer(client), [item["id"] for item in similar.json()["items"]]]


@pytest.mark.process
@pytest.mark.fault(30)
def test_a_change_holds_in_every_worker_in_the_next_answer(start: Start, tmp_path: Path) -> None:
    """An item that is withdrawn and put back, and one that the bundle doesn't have."""
    publish(tmp_path / "items", with_item_tower(contents()))
    service = start(tmp_path / "items", workers=3)
    for _ in range(4):
        assert service.client.delete("/v1/items/107").status_code == 200
        for client in fresh_connections(service):
            assert all(107 not in found for found in everywhere(client))
        assert service.client.put("/v1/items/107", json=FEATURES).status_code == 200
        for client in fresh_connections(service):
            assert 107 in answer(client, history=[105])
    assert service.client.put("/v1/items/900", json=FEATURES).json()["vector"] == "features"
    for client in fresh_connections(service):
        assert answer(client, history=[101])[0] == 900
    assert service.client.delete("/v1/items/900").status_code == 200
    for client in fresh_connections(service):
        assert 900 not in answer(client, history=[101])
