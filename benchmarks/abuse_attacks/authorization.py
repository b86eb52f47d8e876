"""Keys that should not count, and calls that should need one."""

import contextlib
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.abuse_attacks.attack import NotCarriedOutError, Outcome, Scene
from benchmarks.abuse_attacks.target import Target
from benchmarks.abuse_attacks.wire import Answer, asked_on, dial, hang_up, head, post, statuses
from turret.service.keys.keys import remove_key

PLANTED = "planted-by-somebody-else-0123456789"


def respawn_without_key_file(scene: Scene) -> Outcome:
    """The file of the keys is deleted, then a worker is killed."""
    return _after_respawn(scene.target, lambda: scene.target.keys.unlink())


def respawn_with_keys_moved(scene: Scene) -> Outcome:
    """The folder of the keys is moved away, then a worker is killed."""
    folder = scene.target.keys.parent
    return _after_respawn(scene.target, lambda: _move(folder, folder.with_name("elsewhere")))


def respawn_with_keys_out_of_reach(scene: Scene) -> Outcome:
    """The folder of the keys can't be entered, as it is a link to itself; a worker is killed."""
    folder = scene.target.keys.parent

    def hide() -> None:
        _move(folder, folder.with_name("elsewhere"))
        folder.symlink_to(folder)

    return _after_respawn(scene.target, hide)


def revocation_without_descriptors(scene: Scene) -> Outcome:
    """A key is revoked while idle connections leave the workers no file descriptor to read the file with."""
    target = scene.target
    kept = target.workers()
    request = target.recommendation(target.reader)
    if set(_on_each(kept, request)) != {"200"}:
        raise NotCarriedOutError("the key doesn't work before it is revoked")
    idle: list[socket.socket] = []
    try:
        for _ in range(900):
            with contextlib.suppress(OSError):
                idle.append(dial(target.address, timeout=1))
        time.sleep(0.5)
        fewest_free = min(_free_descriptors(pid) for pid in kept)
        remove_key(target.keys, "reader")
        during: Counter[str] = Counter()
        end = time.monotonic() + 2.5
        while time.monotonic() < end:  # each makes the worker look at the file
            during += _on_each(kept, request)
            time.sleep(0.1)
    finally:
        hang_up(idle)
    time.sleep(2.5)
    fresh = target.workers()
    answers = Counter[str]()
    for _ in range(5):
        answers += _on_each(fresh, request)
        time.sleep(0.3)
    hang_up([*kept.values(), *fresh.values()])
    notes = {"free_descriptors": fewest_free, "connections": len(idle), "during": dict(during)}
    return Outcome(answers, opened=answers["200"], held=set(answers) <= {"401"}, notes=notes)


def planted_admin_key(scene: Scene) -> Outcome:
    """Who may write bundles replaces admin.key; a worker is killed, and the planted key is tried."""
    target = scene.target
    right = target.admin_key
    path = target.bundles / "admin.key"
    path.unlink(missing_ok=True)
    path.write_text(PLANTED + "\n", encoding="utf-8")
    return _admin_after_respawn(target, right, lambda: PLANTED)


def remade_admin_key(scene: Scene) -> Outcome:
    """admin.key is deleted; if a worker that begins then makes another, whoever reads that is let in."""
    target = scene.target
    right = target.admin_key
    path = target.bundles / "admin.key"
    path.unlink(missing_ok=True)
    return _admin_after_respawn(target, right, lambda: path.read_text().strip() if path.exists() else "none")


def _after_respawn(target: Target, spoil: Callable[[], object]) -> Outcome:
    """Spoil the keys, replace a worker, and ask both without a key."""
    before = target.workers()
    if set(_without_key(before)) != {"401"}:
        raise NotCarriedOutError("a call without a key is not refused to begin with")
    hang_up(before.values())
    spoil()
    time.sleep(1.2)  # a look at the file, by those who live on
    _, after = target.replace_worker()
    answers = _without_key(after)
    time.sleep(1.2)
    answers += _without_key(after)
    right = _on_each(after, target.recommendation(target.reader))
    hang_up(after.values())
    held = set(answers) == {"401"}
    return Outcome(answers, opened=answers["200"], held=held, notes={"right_key": dict(right)})


def _admin_after_respawn(target: Target, right: str, tried: Callable[[], str]) -> Outcome:
    """Replace a worker, and try a key that isn't the right one, and the right one."""
    _, after = target.replace_worker()
    hang_up(after.values())
    key = tried()
    answers: Counter[str] = Counter()
    rights: Counter[str] = Counter()
    for _ in range(20):  # new connections, so that both workers are asked
        rights += statuses([target.admin("routes", key=right)])
        if key != right:  # else the file has the key of before again
            answers += statuses([target.admin("routes", key=key)])
    held = not answers["200"] and rights["200"] == 20
    return Outcome(answers, opened=answers["200"], held=held, notes={"right_key": dict(rights)})


def _without_key(workers: Mapping[int, socket.socket]) -> Counter[str]:
    """Recommend, read a user and delete one, each without a key."""
    calls = (
        post("/v1/recommend", {"history": [201], "k": 1}),
        head("GET", "/v1/users/7"),
        head("DELETE", "/v1/users/7"),
    )
    return sum((_on_each(workers, call) for call in calls), Counter[str]())


def _on_each(workers: Mapping[int, socket.socket], request: bytes) -> Counter[str]:
    answers: list[Answer] = [asked_on(connection, request) for connection in workers.values()]
    return statuses(answers)


def _free_descriptors(pid: int) -> int:
    limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
    (files,) = (line for line in limits if line.startswith("Max open files"))
    return int(files.split()[3]) - len(os.listdir(f"/proc/{pid}/fd"))


def _move(path: Path, to: Path) -> None:
    path.rename(to)
