"""Activations that are slow, stopped in the middle, queued, or answered too late."""

import json
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from benchmarks.abuse_attacks.attack import NotCarriedOutError, Outcome, Scene
from benchmarks.abuse_attacks.hostile_bundles import copied, rewrite
from benchmarks.abuse_attacks.shop import LIVE, publish_shop
from benchmarks.abuse_attacks.sockets import owner
from benchmarks.abuse_attacks.target import Target, until
from benchmarks.abuse_attacks.wire import Answer, ask, asked_on, dial, hang_up, head, post, statuses

_OTHER_ID = 5001


def stopped_worker(scene: Scene) -> Outcome:
    """A worker is stopped during an activation; the version's files are exchanged before it goes on."""
    target = scene.target
    publish_shop(target.bundles, "v2", seed=1)
    publish_shop(target.work / "evil", "v2", first_id=_OTHER_ID, seed=2)
    workers = target.workers()
    stopped = max(workers)
    os.kill(stopped, signal.SIGSTOP)
    try:
        answer = _activated_by_another(target, stopped)
        if answer.status != 200:
            raise NotCarriedOutError(f"the honest version is refused: {answer.body[:200]!r}")
        (target.bundles / "v2").rename(target.work / "honest")
        shutil.copytree(target.work / "evil" / "v2", target.bundles / "v2")
    finally:
        os.kill(stopped, signal.SIGCONT)
    request = target.recommendation(target.reader, k=5, history=[])
    until(lambda: stopped not in target.children() or _version(workers[stopped], request) == "v2", 3)
    answers = {pid: asked_on(connection, request) for pid, connection in workers.items()}
    hang_up(workers.values())
    unchecked = sum(
        one["id"] >= _OTHER_ID for answer in answers.values() for one in answer.json.get("items", ())
    )
    notes = {"behind": answer.json.get("behind", []), "items_of_unchecked_files": unchecked}
    return Outcome(statuses(answers.values()), opened=int(unchecked > 0), held=not unchecked, notes=notes)


def _activated_by_another(target: Target, stopped: int) -> Answer:
    """Activate v2; half of the connections come to the stopped worker, which answers nothing."""
    for _ in range(50):
        with dial(target.admin_address, timeout=60) as connection:
            time.sleep(0.05)
            if owner(connection, target.children()) not in (None, stopped):
                return asked_on(connection, _activate(target, {"version": "v2"}))
    raise NotCarriedOutError("no connection came to the other worker")


def late_forced_report(scene: Scene) -> Outcome:
    """A forced check that overruns its time reports while the same version is checked without force."""
    target = scene.target
    publish_shop(target.bundles, "other", first_id=_OTHER_ID, seed=3)
    workers = set(target.children())
    plain = target.admin("activate", {"version": "other"})
    if plain.status != 409:
        raise NotCarriedOutError("a version with no item in common is let in without force")
    # Both calls on one connection: the report comes to the worker that was asked.
    with dial(target.admin_address) as connection:
        call = {"version": "other", "force": True}
        first = _checked(target, workers, lambda: asked_on(connection, _activate(target, call)))
        forced, check = first
        if forced.status == 200:
            raise NotCarriedOutError("the forced check was done in time")
        waiting = threading.Thread(target=_stop_checks, args=(target, workers | {check}))
        waiting.start()
        letting = threading.Timer(0.5, _let_go_on, args=(check,))
        letting.start()
        answer = asked_on(connection, _activate(target, {"version": "other"}))
        waiting.join()
        letting.join()
    alive = check in target.children()
    _end_checks(target, workers)
    opened = int(answer.status == 200)
    notes = {"forced": forced.status, "forced_check_lived_on": alive, "words": answer.body[:200].decode()}
    return Outcome(statuses([answer]), opened=opened, held=answer.status == 409, notes=notes)


def activation_queue(scene: Scene) -> Outcome:
    """Activations that wait behind a slow one: how long until each is answered, where 2 s are set."""
    target = scene.target
    copied(target.bundles, LIVE, "again")
    workers = set(target.children())
    with ThreadPoolExecutor(6) as pool:
        slow = pool.submit(target.admin, "activate", {"version": "again"})
        check = _stop_checks(target, workers)
        if check is None:
            raise NotCarriedOutError("no check was seen")
        began = time.monotonic()

        def wait() -> tuple[float, Answer]:
            answer = target.admin("activate", {"version": "again"})
            return time.monotonic() - began, answer

        waiting = [pool.submit(wait) for _ in range(5)]
        stopping = threading.Thread(target=_stop_checks, args=(target, workers | {check}, 8.0))
        stopping.start()
        waited = [one.result() for one in waiting]
        slow.result()
        stopping.join()
    _end_checks(target, workers)
    longest = max(seconds for seconds, _ in waited)
    answers = statuses(answer for _, answer in waited)
    # Two seconds for the turn, three for the check that a call makes when it has its turn.
    return Outcome(answers, held=longest < 5.8, notes={"longest_seconds": round(longest, 2)})


def long_last_words(scene: Scene) -> Outcome:
    """The live version is damaged so that refusing it takes 100 KB of words; then a worker is killed."""
    target = scene.target
    folder = target.bundles / LIVE
    os.chmod(folder, 0o755)
    golden = json.loads((folder / "golden.json").read_bytes())
    golden["queries"][0]["history"] = ["x" * 100_000]
    os.chmod(folder / "manifest.json", 0o644)
    os.chmod(folder / "manifest.sha256", 0o644)
    rewrite(folder, {"golden.json": json.dumps(golden).encode()})
    victim = min(target.workers())
    os.kill(victim, signal.SIGKILL)
    ended = until(lambda: target.process.poll() is not None, 4)
    answers = statuses([Answer() if ended else ask(target.address, head("GET", "/livez"))])
    return Outcome(answers, held=not ended, notes={"service_ended": ended})


def _checked(target: Target, workers: set[int], call: Callable[[], Answer]) -> tuple[Answer, int]:
    """Make a call, and stop the process that checks for it; gives the answer and the process."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(call)
        check = _stop_checks(target, workers)
        if check is None:
            answer.result()
            raise NotCarriedOutError("no check was seen")
        return answer.result(), check


def _stop_checks(target: Target, known: set[int], seconds: float = 2.0) -> int | None:
    """Wait for a check that isn't known, and stop it.

    Between `fork` and `exec` it would stop its parent with it, which waits for the end of `exec`.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for pid in set(target.children()) - known:
            with suppress(ProcessLookupError, FileNotFoundError):
                if b"gate_process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGSTOP)
                    return pid
    return None


def _let_go_on(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def _end_checks(target: Target, workers: set[int]) -> None:
    for pid in set(target.children()) - workers:
        if Path(f"/proc/{pid}").exists():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _activate(target: Target, body: object) -> bytes:
    return post("/admin/activate", body, key=target.admin_key)


def _version(connection: socket.socket, request: bytes) -> str:
    return str(asked_on(connection, request).json.get("version"))
