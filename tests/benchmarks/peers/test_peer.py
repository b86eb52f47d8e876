import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.peers.errors import PeerFailedError
from benchmarks.peers.peer import Peer

Scripted = Callable[..., Peer]

# Counts what it was asked for, and prints as libraries do.
COUNTING = """
import os
import sys


def prepare(data, settings):
    print("preparing")
    asked = []

    def run(steps):
        asked.append(steps)
        print("epoch", len(asked))
        os.write(1, b"from below python\\n")
        return {"examples": settings["size"] * steps, "seconds": 0.5, "asked": asked, "data": data}

    return run
"""


def test_a_peer_trains_as_many_steps_as_it_is_asked_for(scripted: Scripted, tmp_path: Path) -> None:
    """One process for all requests: it remembers those before. It gets the data's path and its settings."""
    with scripted(COUNTING, size=10) as peer:
        assert peer.run(3) == (30, 0.5)
        assert peer.ask(4)["asked"] == [3, 4]
        assert peer.ask(5)["data"] == str(tmp_path / "data.txt")


def test_a_peer_has_ended_when_its_block_has(scripted: Scripted) -> None:
    with scripted(COUNTING, size=10) as peer:
        peer.wait()
        assert peer.process is not None
        number = peer.process.pid
        os.kill(number, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def test_a_peer_knows_nothing_of_this_project(scripted: Scripted) -> None:
    """Neither the project's folder nor that of the protocol is where it imports from."""
    with scripted(
        "import sys\ndef prepare(data, settings):\n    return lambda steps: {'path': sys.path}"
    ) as peer:
        peer.wait()
        with pytest.raises(PeerFailedError, match=r"has examples and seconds, and it answered") as caught:
            peer.run(1)
    assert "benchmarks" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "def prepare(data, settings):\n    raise ValueError('no such layer')",
        "def prepare(data, settings):\n    return lambda steps: 1 / 0 or 'no such layer'",
        "import no_such_library",
    ],
)
def test_a_peer_that_fails_is_quoted(scripted: Scripted, text: str) -> None:
    with (
        scripted(text) as peer,
        pytest.raises(PeerFailedError, match=r"^fake: its process ended: .*Error: ") as e,
    ):
        peer.run(1)
    assert "\n" not in str(e.value)


def test_a_peer_that_is_too_slow_is_ended(scripted: Scripted) -> None:
    sleeping = "import time\ndef prepare(data, settings):\n    return lambda steps: time.sleep(600)"
    start = time.monotonic()
    with (
        scripted(sleeping, limit=1.0) as peer,
        pytest.raises(PeerFailedError, match=r"no answer in 1 s; ask for fewer steps"),
    ):
        peer.run(1)
    assert time.monotonic() - start < 30


def test_a_peer_whose_interpreter_is_gone_says_what_to_delete(scripted: Scripted) -> None:
    peer = scripted(COUNTING, python=Path("/no/such/python"))
    with pytest.raises(PeerFailedError, match=r"/no/such/python could not be started .* delete its folder"):
        peer.start()
    peer.close()


def test_a_peer_that_was_not_started_says_how(scripted: Scripted) -> None:
    peer = scripted(COUNTING)
    with pytest.raises(PeerFailedError, match="use it in a `with` statement"):
        peer.run(1)
    peer.close()


def test_an_answer_that_is_no_result_is_refused(scripted: Scripted) -> None:
    with (
        scripted("def prepare(data, settings):\n    return lambda steps: [steps]") as peer,
        pytest.raises(PeerFailedError, match=r"it answered '\[7\]', which is no JSON object"),
    ):
        peer.run(7)
