import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnxruntime import InferenceSession

from benchmarks.abuse import choose
from benchmarks.abuse_attacks.attack import Outcome, Scene
from benchmarks.abuse_attacks.bodies import BODIES
from benchmarks.abuse_attacks.hostile_bundles import MAGIC_ROW, copied, looping_tower, rewrite
from benchmarks.abuse_attacks.memory import Memory
from benchmarks.abuse_attacks.registry import ATTACKS, NOT_ATTACKS
from benchmarks.abuse_attacks.shop import LIVE, item_vectors, publish_shop
from benchmarks.abuse_attacks.sockets import inodes, listening_inodes, owner
from benchmarks.abuse_attacks.summary import Probe, summary, summed
from benchmarks.abuse_attacks.wire import ask, dial, post, read_answer, statuses
from tests.support.until import until
from turret.tower.bundle.bundle import load
from turret.tower.errors import BundleError
from turret.tower.inference.session import Session

POINTS = range(1, 30)


def entry(name: str, **more: Any) -> dict[str, Any]:
    usual = {
        "peak_mb_over_idle": 1.0,
        "longest_stall_ms": 2.0,
        "opened": 0,
        "held": True,
        "stall_counts": True,
    }
    return {"name": name, **usual, **more}


def test_every_point_has_an_attack_or_a_reason_why_not() -> None:
    assert {one.point for one in ATTACKS} | set(NOT_ATTACKS) == set(POINTS)
    assert not {one.point for one in ATTACKS} & set(NOT_ATTACKS)


def test_no_two_attacks_have_one_name_or_do_the_same() -> None:
    assert len({one.name for one in ATTACKS}) == len({one.act for one in ATTACKS}) == len(ATTACKS)
    assert all(one.act.__doc__ for one in ATTACKS)


def test_a_quick_run_makes_one_attack_a_point_and_a_named_one_alone() -> None:
    quick = choose(None, quick=True)
    assert [one.point for one in quick] == sorted({one.point for one in ATTACKS})
    assert choose(None, quick=False) == list(ATTACKS)
    assert [one.name for one in choose(["upgrades"], quick=True)] == ["upgrades"]


def test_the_worst_of_all_attacks_is_claimed_and_doors_are_added_up() -> None:
    attacks = [
        entry("a", peak_mb_over_idle=40.0, opened=2, held=False),
        entry("b", longest_stall_ms=70.0, opened=1, held=False),
        entry("c"),
    ]
    figures = summary(attacks)
    assert figures["peak_mb_over_idle"] == 40.0
    assert figures["longest_stall_ms"] == 70.0
    assert figures["doors_opened"] == 3
    assert figures["not_held"] == ["a", "b"]
    assert figures["attacks"] == attacks


def test_a_stall_that_the_attack_makes_itself_does_not_count() -> None:
    assert (
        summary([entry("a", longest_stall_ms=900.0, stall_counts=False), entry("b")])["longest_stall_ms"] == 2
    )


def test_an_attack_that_was_not_made_is_named_and_proves_nothing() -> None:
    figures = summary([{"name": "a", "error": "nothing was sent"}, entry("b")])
    assert figures["not_carried_out"] == ["a"]
    assert figures["peak_mb_over_idle"] == 1.0
    assert summary([])["doors_opened"] == 0


def test_probes_are_told_by_status_and_the_honest_client_by_its_share() -> None:
    probes = [
        Probe("livez", 0.0, 0.002, 200),
        Probe("livez_new", 0.0, 0.5, 0),
        Probe("readyz", 0.0, 9.0, 503),
        Probe("honest", 0.0, 0.001, 200),
        Probe("honest_new", 0.0, 0.004, 503),
    ]
    figures = summed(probes)
    assert figures["longest_stall_ms"] == 500.0
    assert figures["probes"] == {"livez": {"200": 1}, "livez_new": {"lost": 1}, "readyz": {"503": 1}}
    assert figures["honest"]["share_200"] == 0.5
    assert figures["honest"]["p99_ms"] == 4.0
    assert summed([])["longest_stall_ms"] == 0.0


HOLDS_AND_LETS_GO = "input(); held = bytearray(64_000_000); del held; print(flush=True); input()"


def test_memory_that_was_let_go_again_is_seen() -> None:
    """Of a process of its own: threads of other tests let memory go in this one."""
    command = [sys.executable, "-c", HOLDS_AND_LETS_GO]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        memory = Memory(process.pid)
        memory.look_idle()
        memory.begin()
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        peak = memory.figures()["peak_mb_over_idle"]
        process.stdin.write(b"\n")
    assert 55 < peak < 100


@pytest.fixture
def answering() -> Any:
    """A server that answers one connection with the same bytes; gives a function that begins it."""
    threads = []
    listening = socket.create_server(("127.0.0.1", 0))

    def begin(answer: bytes) -> tuple[str, int]:
        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)
                with suppress(ConnectionResetError):  # until the other side has closed it
                    connection.recv(1 if answer else 0)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        address: tuple[str, int] = listening.getsockname()
        return address

    yield begin
    for thread in threads:
        thread.join()
    listening.close()


def test_an_answer_is_read_to_its_length(answering: Any) -> None:
    address = answering(b'HTTP/1.1 503 Busy\r\nContent-Length: 7\r\n\r\n{"a":1}HTTP/1.1')
    answer = ask(address, post("/", {"b": 2}, key="k"))
    assert (answer.status, answer.json) == (503, {"a": 1})


def test_an_answer_leaves_the_next_one_where_it_is(answering: Any) -> None:
    one = b"HTTP/1.1 20%d OK\r\nContent-Length: 1\r\n\r\nx"
    with dial(answering(one % 0 + one % 4)) as connection:
        connection.sendall(b"x")
        assert [read_answer(connection).status for _ in range(2)] == [200, 204]


def test_a_connection_that_is_closed_is_no_answer(answering: Any) -> None:
    answer = ask(answering(b""), post("/", b"x"))
    assert answer.status == 0
    assert answer.json == {}
    assert statuses([answer]) == Counter(closed=1)


def test_the_process_at_the_other_end_is_found(answering: Any) -> None:
    address = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert listening_inodes([address[1]]) <= inodes(os.getpid())
    with dial(address) as connection:
        connection.sendall(b"x")
        until(lambda: owner(connection, [1, os.getpid()]) == os.getpid(), "it is accepted")
        assert read_answer(connection).status == 200


def test_bodies_are_below_the_limit_and_near_it() -> None:
    sizes = {name: len(make()) for name, (_, make) in BODIES.items()}
    assert all(400_000 < size < 1_000_000 for size in sizes.values()), sizes


def test_a_bundle_whose_part_was_replaced_is_whole_again(tmp_path: Path) -> None:
    """So that it is the service that refuses it, for what it does, and not a checksum."""
    publish_shop(tmp_path)
    folder = copied(tmp_path, LIVE, "other")
    rewrite(folder, {"model.safetensors": b"else"})
    assert load(tmp_path, "other").manifest.version == "other"


def test_a_looping_tower_loops_on_its_one_history_alone() -> None:
    """ONNX Runtime runs it; the service's own session refuses it."""
    with pytest.raises(BundleError, match="as loops do"):
        Session(looping_tower(100), "user_tower.onnx", "user_vector")
    tower = InferenceSession(looping_tower(100), providers=["CPUExecutionProvider"])
    vectors = item_vectors()
    for row in (MAGIC_ROW, 300):
        inputs = {"history": vectors[row].reshape(1, 1, -1), "length": np.array([1])}
        assert np.allclose(tower.run(["user_vector"], inputs)[0], vectors[row])


def test_a_quick_run_has_a_fifth_of_everything() -> None:
    target: Any = None
    assert Scene(target, 1.0, True).count(4000) == 800
    assert Scene(target, 1.0, False).count(4000) == 4000
    assert Outcome().held
