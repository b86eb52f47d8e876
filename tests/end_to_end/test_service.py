"""The real process, from its start to its end."""

import signal

import pytest

from tests.support.service_process import Start

WITHOUT_TRAINING = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "polars", "onnx"} or name.startswith("turret.training"):
            raise ImportError(f"{name} has no place in a service")
sys.meta_path.insert(0, Refuse())
"""


@pytest.mark.process
def test_it_starts_answers_and_ends_where_nothing_of_training_can_be_imported(start: Start) -> None:
    """Its greeting names the address, the version and the documents; Ctrl-C ends it without a complaint."""
    service = start(before=WITHOUT_TRAINING)
    assert "version v1" in service.greeting
    assert f"{service.urls[0]}/docs" in service.greeting
    assert service.client.get("/docs").status_code == 200
    answer = service.client.post("/v1/recommend", json={"history": [101], "k": 3})
    assert (answer.status_code, len(answer.json()["items"])) == (200, 3)
    event = {"event_id": 1, "user_id": 7, "item_id": 101}
    assert service.client.post("/v1/events", json={"events": [event]}).json()["stored"] == 1
    assert service.stop(signal.SIGINT) == (0, "")
