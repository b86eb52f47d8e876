"""Attacks on the running service: the doors that they open, and their cost to everybody else.

A service of a shop of 3,000 items, with one worker, keys and SQLite, gets the hostile requests of
`benchmarks.abuse_requests`, one at a time, and then the attacks of `benchmarks.abuse_attacks`. A process
beside them asks for `/livez` and, as another client, for recommendations.

- `doors_opened`: answers of 500, answers of 2xx to requests without the scope or at another path, workers
  that end, requests that are not answered within `PATIENCE` seconds, and data that is lost or comes back.
- `longest_stall_ms`: the longest time to an answer of the other client beyond the median of that call. Time
  in which a thread waited for a core is taken off, as the machine adds it; `longest_wait_ms` has it.
- `peak_mb_over_idle`: the most resident memory of the worker (VmHWM) over that after its first answers.
- `slowest_ms_a_kb`: over requests with the scopes read, write and rules, the processor time of the worker
  beyond that of the normal request of the call, divided by the kilobytes of the request, at least one.
  `slowest_admin_ms_a_kb` is that of the scope admin.

A request or an attack beyond a bound, or slower than all before, is made three times and counts with its best
figure, as other work on the machine only adds. `--attack NAME`, repeatable, makes single attacks (`calls`,
`doors`, and the others by their names) and keeps no result. `--seconds` is the time of `calls`, of which each
call has its share; its hostile requests are in random order, and `unsent` counts those left over.
"""

import argparse
import csv
import json
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.abuse_attacks import ATTACKS, Attack
from benchmarks.abuse_requests import ENDINGS, METHODS, Call, Request, calls, json_request
from benchmarks.abuse_target import PATIENCE, SCOPES, Address, Target
from benchmarks.harness import Options, run
from benchmarks.processes import turret

WORK, DOCUMENT = Path("var/benchmarks/abuse"), Path("turret/service/http/static/openapi.json")
STALL_MS, PEAK_MB = 150.0, 150.0
TRIES, ENOUGH_HANGS = 3, 3
FIGURES = ("longest_stall_ms", "peak_mb_over_idle", "slowest_ms_a_kb", "slowest_admin_ms_a_kb")
# A quick run has these attacks and takes under a minute on a quiet machine.
QUICK = ("calls", "doors", "blank_items", "large_rules", "repeated_rollback", "wrong_keys")
DEADLY = {"x://", "' '", "' ' of a body", "'>'", "'/'", "' > '", "'\\t'", "'a '", "'\ufdfa'", "maximum"}


class Worst:
    """The worst figures so far, and the requests that caused them."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}
        self.where: dict[str, str] = {}

    def note(self, figure: str, value: float, where: str) -> None:
        """Keep a figure if none was worse."""
        if value >= self.figures.get(figure, 0.0):
            self.figures[figure], self.where[figure] = round(value, 2), where


Way = Callable[[Target, Worst], Iterator[dict[str, Any]]]


def attack_calls(target: Target, worst: Worst) -> Iterator[dict[str, Any]]:
    """Send every hostile request of every call, one at a time, or those that a slow machine has time for."""
    hangs: Counter[str] = Counter()
    known = [(call, _ordered(list(call.hostile()), target.quick)) for call in _calls()]
    left, all_requests = target.seconds, sum(len(call_requests) for _, call_requests in known)
    target.start()
    for call, requests in known:
        if call.path == "/v1/search":
            target.again("words")
        begun, answers = time.monotonic(), Counter[int]()
        if not requests:
            continue
        normal = [target.cost(call.normal()) for _ in range(1 if call.scope == "admin" else TRIES)]
        least = min(cost.processor_ms for cost in normal)
        began = time.monotonic()  # the normal requests don't count, as an activation is slow
        end = began + left * len(requests) / max(1, all_requests)
        for request in requests:
            if time.monotonic() > end:
                break
            if hangs[request.label] < ENOUGH_HANGS:
                status = attempt(target, worst, call, request, least)
                hangs[request.label] += status == -1
                answers[status] += 1
        left, all_requests = left - (time.monotonic() - began), all_requests - len(requests)
        peak = target.peak_mb()
        worst.note("peak_mb_over_idle", peak, call.name)
        if peak > PEAK_MB or call.path == "/v1/search":
            target.again("first")
        yield {
            "name": call.name,
            "normal": normal[-1].status,
            "normal_ms": round(least, 2),
            "unsent": len(requests) - answers.total(),
            "answers": {str(status): count for status, count in sorted(answers.items())},
            "peak_mb_over_idle": round(peak, 1),
            "seconds": round(time.monotonic() - begun, 1),
        }
    target.end(kill=True)


def _ordered(requests: list[Request], quick: bool) -> list[Request]:
    """The requests in random order; those that once stopped a worker come first."""
    random.Random(7).shuffle(requests)
    return sorted(requests, key=lambda request: request.label not in DEADLY)[: 20 if quick else None]


def _calls() -> list[Call]:
    return calls(json.loads(DOCUMENT.read_text("utf-8")))


def attack_by(name: str, attack: Attack, settings: dict[str, str]) -> Way:
    """Make an attack of several requests, on a service of its own."""

    def run(target: Target, worst: Worst) -> Iterator[dict[str, Any]]:
        stall = wait = peak = float("inf")
        begun = time.monotonic()
        for _ in range(TRIES):
            target.start(settings=settings)
            begin = time.monotonic()
            findings = [*_doors_of(lambda: attack(target))]
            longest = target.stall(begin, time.monotonic())
            stall, wait = min(stall, 1e3 * longest[0]), min(wait, 1e3 * longest[1])
            peak = min(peak, target.peak_mb())
            findings += _doors_of(lambda: _after(target))
            target.end(kill=True)
            for words in findings:
                target.open_door(f"{name}: {words}")
            if findings or target.quick or (stall <= STALL_MS and peak <= PEAK_MB):
                break
        worst.note("longest_stall_ms", stall, name)
        worst.note("longest_wait_ms", wait, name)
        worst.note("peak_mb_over_idle", peak, name)
        seconds = round(time.monotonic() - begun, 1)
        row = {"name": name, "longest_stall_ms": round(stall, 1), "longest_wait_ms": round(wait, 1)}
        yield row | {"peak_mb_over_idle": round(peak, 1), "seconds": seconds}

    return run


def _doors_of(attack: Callable[[], Iterator[str]]) -> Iterator[str]:
    try:
        yield from attack()
    except OSError as error:  # among them TimeoutError
        yield f"a request was not answered ({error})"


def _after(target: Target) -> Iterator[str]:
    if not target.is_whole():
        yield "a worker ended"
    elif count := target.failures():
        yield f"{count} answers of 500"


def attempt(target: Target, worst: Worst, call: Call, request: Request, normal_ms: float) -> int:
    """Send a hostile request, again while it is worse than all before; return the status."""
    figure = "slowest_admin_ms_a_kb" if call.scope == "admin" else "slowest_ms_a_kb"
    shown = f"{call.name} {request.place} {request.label} ({request.size} bytes)"
    rate, stall, wait = float("inf"), float("inf"), float("inf")
    for _ in range(TRIES):
        cost = target.cost(request)
        rate = min(rate, (cost.processor_ms - normal_ms) / max(1.0, request.size / 1e3))
        stall, wait = min(stall, cost.stall_ms), min(wait, cost.wait_ms)
        is_whole = target.is_whole()
        if cost.status in (-1, 0, 500) or not is_whole:
            late = (
                f"no answer within {PATIENCE:g} s"
                if cost.status == -1
                else f"{cost.status} {cost.body[:200]!r}"
            )
            target.open_door(f"{shown}: {late if is_whole or cost.status == -1 else 'the worker ended'}")
            if cost.status == -1 or not is_whole:
                target.again()
            break
        if rate <= worst.figures.get(figure, 0.0) and stall <= worst.figures.get("longest_stall_ms", 0.0):
            break
    worst.note(figure, rate, shown)
    worst.note("longest_stall_ms", stall, shown)
    worst.note("longest_wait_ms", wait, shown)
    return cost.status


def try_doors(target: Target, worst: Worst) -> Iterator[dict[str, Any]]:
    """Send each call without its scope, at odd paths, and by other methods: nothing may pass or change."""
    target.start()
    begun, answers, before, known = time.monotonic(), Counter[int](), _state(target), _calls()

    def refused(request: Request, key: str | None, address: Address | None, words: str) -> None:
        status, _ = target.exchange(request, key, address)
        answers[status] += 1
        if status < 400 or status >= 500:
            target.open_door(f"{request.method} {request.target} {words}: {status}")

    keys = {"no key": None, "a wrong key": "turret_all_" + "A" * 43, **dict(zip(SCOPES, SCOPES, strict=True))}
    for call in known:
        normal = call.normal()
        path, mark, query = normal.target.partition("?")
        others = set(METHODS) - {other.method for other in known if other.path == call.path}
        odd = [(end, normal.method) for end in ("", *ENDINGS)]
        odd += [("", method) for method in METHODS if method in others]
        for ending, method in odd[:: 8 if target.quick else 1]:
            request = normal._replace(target=path + ending + mark + query, method=method)
            for name, key in keys.items():
                if call.scope is not None and key != call.scope:
                    for address in {target.public, target.admin} if "/admin" in path else (target.public,):
                        refused(request, key, address, f"with {name}")
            if ending and not path.endswith(("i0001", "u00007", "i00019", "u000079")):
                refused(request, "all", None, f"is answered as {call.path}")
    for what, value in _state(target).items():
        if before[what] != value:
            target.open_door(f"{what} changed without a key: {value[:200]!r}")
    target.end()
    seconds = round(time.monotonic() - begun, 1)
    counts = {str(status): count for status, count in answers.items()}
    yield {"name": "doors", "answers": counts, "seconds": seconds}


def _state(target: Target) -> dict[str, bytes]:
    paths = ("/v1/rules", "/v1/items/i0001", "/v1/users/u00007", "/admin/routes", "/admin/comparison")
    return {path: target.exchange(json_request("GET", path))[1] for path in paths}


def measure(options: Options) -> dict[str, Any]:
    """Make the attacks one after another."""
    target, worst, rows = Target(_shop()), Worst(), []
    target.quick, target.seconds = options.quick, 20.0 if options.quick else options.given.seconds
    for name in options.given.attack or (QUICK if options.quick else WAYS):
        for row in WAYS[name](target, worst):
            rows.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
    figures = dict.fromkeys(FIGURES, 0.0) | worst.figures
    return {
        "doors_opened": len(target.doors),
        **figures,
        "where": worst.where,
        "doors": target.doors,
        "attacks": rows,
    }


def _shop() -> Path:
    """Bundles of a shop with texts, paths, lists and kinds: two of recommendations, one of questions."""
    bundles, shop = WORK / "bundles", WORK / "shop"
    if not (bundles / "words").is_dir():
        shutil.rmtree(bundles, ignore_errors=True)
        turret("data", "synth", shop, "--messy", "--users", 300, "--items", 3_000, "--overwrite")
        _add_lists_and_questions(shop)
        items = ("--items", shop / "items.csv")
        kinds = [f"--kind={kind}" for kind in ("purchase", "cart=signal", "view=signal", "return=negative")]
        log = (shop / "events.csv", *items, "--users", shop / "users.csv", "--kind-column", "event", *kinds)
        _export("first", "dssm", *log, "--session", "session_id", "--on-bad", "drop")
        _export("words", "questions", "--queries", shop / "queries.csv", *items)
        turret("index", bundles / "first", "--kind", "auto", "--version", "second")
    return bundles


def _export(version: str, experiment: str, *source: object) -> None:
    prepared, run = WORK / "prepared", WORK / "run"
    once = ("--experiment", experiment, "--set", "training.epochs=1", "--overwrite")
    turret("data", "prepare", *source, "--to", prepared, "--overwrite")
    turret("train", "--data", prepared, "--run", run, *once)
    turret("export", run, "--bundles", WORK / "bundles", "--version", version)


def _add_lists_and_questions(shop: Path) -> None:
    with (shop / "items.csv").open(newline="") as file:
        items = [
            row | {"tags": f"t{n % 50}|t{n % 7}|x{n % 900}"} for n, row in enumerate(csv.DictReader(file))
        ]
    with (shop / "items.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(items[0]))
        writer.writeheader()
        writer.writerows(items)
    lines = [f"{row['title']},{row['item_id']}" for row in items[:300]]
    (shop / "queries.csv").write_text("\n".join(["query,item", *lines, ""]))


WAYS: dict[str, Way] = {"calls": attack_calls, "doors": try_doors}
WAYS |= {name: attack_by(name, attack, settings) for name, (attack, settings) in ATTACKS.items()}

if __name__ == "__main__":
    attacks = argparse.ArgumentParser(add_help=False)
    attacks.add_argument("--attack", action="append", choices=list(WAYS), metavar="NAME")
    attacks.add_argument("--seconds", type=float, default=300.0)
    run(measure, needs_data=False, more=attacks, is_whole=lambda options: not options.given.attack)
