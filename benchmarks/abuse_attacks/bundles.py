"""Bundles that do what no bundle should, activated as any version is."""

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.abuse_attacks.attack import NotCarriedOutError, Outcome, Scene
from benchmarks.abuse_attacks.hostile_bundles import (
    MAGIC_ROW,
    copied,
    huge_golden,
    looping_tower,
    reading_tower,
    rewrite,
)
from benchmarks.abuse_attacks.shop import FIRST_ID, ITEMS, LIVE
from benchmarks.abuse_attacks.sockets import inodes, listening_inodes
from benchmarks.abuse_attacks.target import Target
from benchmarks.abuse_attacks.wire import Answer, ask, head, statuses

_MAGIC = [FIRST_ID + MAGIC_ROW]
_MOST_BYTES = 600_000_000  # of a check, which is ended then: the machine is others' too


def tower_reads_files(scene: Scene) -> Outcome:
    """A tower with external data: the bytes of admin.key come as scores of recommendations."""
    target = scene.target
    secret = target.admin_key
    answers: Counter[str] = Counter()
    read = ""
    file = target.admin_key_file
    for number, place in enumerate((str(file.relative_to(target.work)), "../admin.key", str(file))):
        name = f"reads{number}"
        folder = copied(target.bundles, LIVE, name)
        rewrite(folder, {"user_tower.onnx": reading_tower(place, len(secret))})
        activated = target.admin("activate", {"version": name})
        answers += statuses([activated])
        if activated.status == 200:
            read = read or _spelt(target.recommend(target.reader, history=_MAGIC, k=ITEMS), len(secret))
    found = read == secret
    notes = {"bytes_read": len(read) if found else 0}
    return Outcome(answers, opened=int(found), held=set(answers) == {"409"}, notes=notes)


def tower_loops(scene: Scene) -> Outcome:
    """A tower that loops on one history; four requests have it."""
    target = scene.target
    folder = copied(target.bundles, LIVE, "loops")
    rewrite(folder, {"user_tower.onnx": looping_tower(1_000_000)})
    activated = target.admin("activate", {"version": "loops"})
    answers = Counter({f"activate {activated.status}": 1})
    seconds = 0.0
    if activated.status == 200:
        began = time.monotonic()
        asking = [
            threading.Thread(target=target.recommend, args=(target.reader,), kwargs={"history": _MAGIC})
            for _ in range(4)
        ]
        for one in asking:
            one.start()
        for one in asking:
            one.join()
        seconds = time.monotonic() - began
    notes = {"seconds_of_four_requests": round(seconds, 2), "words": _words(activated)}
    opened = int(activated.status == 200)
    return Outcome(answers, opened=opened, held=activated.status == 409, notes=notes)


def huge_golden_queries(scene: Scene) -> Outcome:
    """Recorded queries of 88 MB; the check of the version is ended where it takes more than 0.6 GB."""
    target = scene.target
    folder = copied(target.bundles, LIVE, "golden")
    rewrite(folder, {"golden.json": huge_golden(folder, 88_000_000)})
    workers = set(target.children())
    over = threading.Event()
    largest: list[int] = [0]
    guard = threading.Thread(target=_guard, args=(target, workers, over, largest))
    guard.start()
    try:
        began = time.monotonic()
        answer = target.admin("activate", {"version": "golden"})
        seconds = time.monotonic() - began
    finally:
        over.set()
        guard.join()
    notes = {"check_mb": round(largest[0] / 1e6), "seconds": round(seconds, 2), "words": _words(answer)}
    return Outcome(statuses([answer]), held=answer.status == 409 and largest[0] < 250_000_000, notes=notes)


def linked_version(scene: Scene) -> Outcome:
    """A version that is a link to a folder elsewhere."""
    target = scene.target
    elsewhere = target.work / "elsewhere"
    elsewhere.mkdir()
    copied(target.bundles, LIVE, "linked").rename(elsewhere / "linked")
    (target.bundles / "linked").symlink_to(elsewhere / "linked")
    answer = target.admin("activate", {"version": "linked"})
    opened = int(answer.status == 200)
    return Outcome(
        statuses([answer]), opened=opened, held=answer.status == 409, notes={"words": _words(answer)}
    )


def paths_in_answers(scene: Scene) -> Outcome:
    """Whether answers tell where the service's files are."""
    target = scene.target
    (copied(target.bundles, LIVE, "broken") / "manifest.json").write_text("{")
    folder = copied(target.bundles, LIVE, "damaged")
    (folder / "item_vectors.npy").write_bytes(b"x")
    asked = [
        *(target.admin("activate", {"version": name}) for name in ("broken", "damaged", "nothing")),
        _versions(target),
    ]
    told = sum(str(target.work).encode() in one.body for one in asked)
    if any(not one.status for one in asked):
        raise NotCarriedOutError("a call was not answered")
    return Outcome(statuses(asked), held=not told, notes={"answers_with_a_path": told})


def overrunning_checks(scene: Scene) -> Outcome:
    """Three activations whose checks take longer than they may: what is left of the processes."""
    target = scene.target
    folder = copied(target.bundles, LIVE, "golden")
    rewrite(folder, {"golden.json": huge_golden(folder, 20_000_000)})
    workers = set(target.children())
    answers = statuses(target.admin("activate", {"version": "golden"}) for _ in range(3))
    time.sleep(0.3)
    left = [pid for pid in target.children() if pid not in workers]
    listening = listening_inodes([target.address[1], target.admin_address[1]])
    with_sockets = sum(bool(inodes(pid) & listening) for pid in left)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    if answers["200"]:
        raise NotCarriedOutError("the check was done in time")
    notes = {"processes_left": len(left), "with_listening_sockets": with_sockets}
    return Outcome(answers, held=not left, notes=notes)


def opening_asks_for_address_space(scene: Scene) -> Outcome:
    """By how much the address space of a worker rises while it opens a second version."""
    target = scene.target
    workers = target.workers()
    for connection in workers.values():
        connection.close()
    copied(target.bundles, LIVE, "second")
    before = {pid: _kilobytes(pid, "VmSize") for pid in workers}
    answer = target.admin("activate", {"version": "second"})
    if answer.status != 200:
        raise NotCarriedOutError(f"an honest version is refused: {_words(answer)}")
    rises = [_kilobytes(pid, "VmPeak") - size for pid, size in before.items()]
    megabytes = round(max(rises) * 1024 / 1e6)
    return Outcome(statuses([answer]), held=megabytes < 1000, notes={"address_space_mb_over_idle": megabytes})


def _versions(target: Target) -> Answer:
    return ask(target.address, head("GET", "/v1/versions", key=target.reader))


def _spelt(answer: Answer, count: int) -> str:
    """The bytes that the scores of the first items spell out."""
    scores: dict[Any, float] = {one["id"]: one["score"] for one in answer.json.get("items", ())}
    return "".join(chr(max(0, round(scores.get(FIRST_ID + row, 0.0)))) for row in range(count))


def _guard(target: Target, workers: set[int], over: threading.Event, largest: list[int]) -> None:
    """End a check that takes too much."""
    while not over.wait(0.02):
        for pid in target.children():
            held = _kilobytes(pid, "RssAnon") * 1024 if pid not in workers else 0
            largest[0] = max(largest[0], held)
            if held > _MOST_BYTES:
                os.kill(pid, signal.SIGKILL)


def _kilobytes(pid: int, field: str) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # it has just ended
        return 0
    return int(text.partition(f"{field}:")[2].split()[0]) if f"{field}:" in text else 0


def _words(answer: Answer) -> str:
    return str(answer.json.get("error", {}).get("message", ""))[:200]
