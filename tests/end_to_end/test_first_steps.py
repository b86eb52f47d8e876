"""The first commands of a user: the demo and the service."""

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.command_line import TURRET, environment
from tests.support.ports import free_port
from tests.support.service_process import Start
from turret.data.synthetic.synthesis import SyntheticConfig, synthesise

WITHOUT_TRAINING = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "polars", "onnx"} or name.startswith("turret.training"):
            raise ImportError(f"{name} has no place in a service")
sys.meta_path.insert(0, Refuse())
"""


@pytest.fixture
def port() -> Iterator[int]:
    """A port that nothing uses, nor the one behind it, which takes the admin calls; both are held."""
    while True:
        port = free_port()
        with socket.socket() as admin, suppress(OSError):
            admin.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            admin.bind(("127.0.0.1", port + 1))
            yield port
            return


@pytest.mark.process
def test_the_demo_stops_after_the_answer(tmp_path: Path, port: int) -> None:
    """It prints every command, recommends by the id of a user, exits 0, and leaves nothing that listens."""
    small = SyntheticConfig(users=150, items=160, events_per_user=12, longest_history=40)
    synthesise(small, tmp_path / "shop")
    demo = subprocess.run(
        [*TURRET, "demo", "shop", "--once", "--port", str(port)],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert demo.returncode == 0, demo.stdout
    commands = ("data prepare", "train", "evaluate", "export", "serve", "history load", "recommend --user")
    for command in commands:
        assert f"$ turret {command}" in demo.stdout
    assert "what next?" in demo.stdout
    assert demo.stdout.count("The ") > 2
    answer = demo.stdout[demo.stdout.index("$ turret recommend") :]
    assert answer.count(" towers ") == 10, "a user of the log is not answered with popular items"
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=1)


@pytest.mark.process
def test_a_service_starts_and_answers_where_nothing_of_training_can_be_imported(start: Start) -> None:
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
