"""`make demo`, without make: the script that it calls."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.ports import free_port
from turret.data.synthetic.synthesis import SyntheticConfig, synthesise

SCRIPT = Path(__file__).parents[2] / "deploy" / "demo.sh"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of raw events, small enough for seconds."""
    folder = tmp_path_factory.mktemp("demo") / "shop"
    synthesise(SyntheticConfig(users=150, items=160, events_per_user=12, longest_history=40), folder)
    return folder


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


def start(cwd: Path, **settings: str) -> "subprocess.Popen[str]":
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.Popen(
        ["bash", str(SCRIPT)],
        cwd=cwd,
        env={**os.environ, "PATH": path, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.process
def test_once_stops_after_the_answer(tmp_path: Path, shop: Path, port: int) -> None:
    """It prints every command, recommends by the id of a user, exits 0, and leaves nothing that listens."""
    demo = start(tmp_path, DATA=str(shop), ONCE="1", PORT=str(port))
    printed, _ = demo.communicate(timeout=300)
    assert demo.returncode == 0, printed
    commands = ("data prepare", "train", "evaluate", "export", "serve", "history load", "recommend --user")
    for command in commands:
        assert f"$ turret {command}" in printed
    assert "what next?" in printed
    assert printed.count("The ") > 2
    answer = printed[printed.index("$ turret recommend") :]
    assert answer.count(" towers ") == 10, "a user of the log is not answered with popular items"
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=1)
