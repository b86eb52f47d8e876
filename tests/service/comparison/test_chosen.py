import os
import time

from turret.service.comparison.chosen import ChosenVersion
from turret.service.shared_state import COMPARISON, SharedState

MANIFEST = "0123456789abcdef" * 4


def test_another_process_reads_what_was_chosen() -> None:
    shared_state = SharedState(2)
    chosen = ChosenVersion(shared_state, 60)
    assert chosen.read() is None
    pid = os.fork()
    if pid == 0:
        chosen.choose("v" * 64, MANIFEST)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    found = chosen.read()
    assert found is not None
    assert (found.version, found.manifest) == ("v" * 64, MANIFEST)
    assert 59 < found.seconds <= 60
    assert abs(found.opened - time.time() * 1000) < 60_000


def test_it_touches_neither_the_target_nor_the_workers() -> None:
    shared_state = SharedState(2)
    shared_state.target.raise_to(7, b"p" * 64, "w" * 64)
    shared_state.slots[0].live = 7
    ChosenVersion(shared_state, 60).choose("v" * 64, MANIFEST)
    assert shared_state.target.pinned == (7, b"p" * 64, "w" * 64)
    assert [slot.live for slot in shared_state.slots] == [7, 0]
    assert shared_state.memory[:COMPARISON].count(b"v") == 0


def test_only_a_call_to_the_same_version_lets_it_expire_later() -> None:
    shared_state = SharedState()
    brief, long = ChosenVersion(shared_state, 0.05), ChosenVersion(shared_state, 60)
    brief.choose("v2", MANIFEST)
    opened = brief.read()
    long.renew("v3")
    assert opened is not None
    assert opened.seconds <= 0.05
    long.renew("v2")
    renewed = long.read()
    assert renewed is not None
    assert (renewed.opened, renewed.seconds > 59) == (opened.opened, True)


def test_it_expires_and_is_not_renewed_then() -> None:
    chosen = ChosenVersion(SharedState(), 0.01)
    chosen.choose("v2", MANIFEST)
    time.sleep(0.02)
    chosen.renew("v2")
    assert chosen.read() is None


def test_it_is_cleared_by_name_or_whatever_it_is() -> None:
    chosen = ChosenVersion(SharedState(), 60)
    for name, is_cleared in (("v3", False), ("v2", True), (None, True)):
        chosen.choose("v2", MANIFEST)
        chosen.clear(name)
        assert (chosen.read() is None) == is_cleared
