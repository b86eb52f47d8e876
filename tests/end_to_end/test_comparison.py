"""Several worker processes compare one version, whichever of them answers a call."""

from collections.abc import Callable
from pathlib import Path

from tests.support.service_process import Start, plain_client
from turret.tower.bundle.publish import BundleContents, publish

KEY = "a-key-of-sixteen"
BODY = {"history": [120, 130], "k": 5}


def test_every_worker_compares_the_version_that_one_has_opened(
    start: Start, bundles: Path, make_contents: Callable[..., BundleContents]
) -> None:
    """Each call comes on a connection of its own, so that both workers answer some."""
    publish(bundles, make_contents("v2", ids=range(110, 180), seed=1))
    process = start(workers=2, admin_key=KEY)

    def call(method: str, path: str = "", body: object = None) -> tuple[int, dict[str, object]]:
        with plain_client(process.urls[0], 60, {"Authorization": f"Bearer {KEY}"}) as client:
            answer = client.request(method, f"/admin/comparison{path}", json=body)
            return answer.status_code, answer.json()

    assert call("POST", body={"version": "v2"})[0] == 200
    answers = [call("POST", "/recommend", BODY) for _ in range(12)]
    assert {status for status, _ in answers} == {200}
    assert all(answer == answers[0] for answer in answers)
    assert call("GET", "/catalog")[1]["added"] == 20
    assert call("GET", "/overlap?k=5")[1]["source"] == "golden"
    assert call("DELETE")[1] == {"version": None, "live": "v1"}
    assert {call("POST", "/recommend", BODY)[0] for _ in range(6)} == {409}
    assert process.stop()[0] == 0
