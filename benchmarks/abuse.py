"""What attacks on the running service cost everybody else, and which doors they open.

Each attack has a service of its own: `turret serve` with two workers and a file of keys, on 2,000 items.
Beside it, another process looks at the memory of the service, asks for `/livez` and is an honest client
(`benchmarks/abuse_monitor.py`). `peak_mb_over_idle` is the most memory that an attack took, and
`longest_stall_ms` the longest that `/livez` took, on a machine that should have nothing else to do; from
`own_stall_ms` the time is taken off in which a worker waited for a core. `refused_share` is that of the
answers 429 and 503. Floods come through nginx with the limits of the production profile. `doors_opened`
counts the answers to requests that had to be refused.

`--attack NAME`, repeatable, makes single attacks and keeps no result; `--quick` makes the first of each
group.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.abuse_attacks import ATTACKS, Address, Attack, Scene
from benchmarks.abuse_monitor import watched
from benchmarks.harness import Options, run
from benchmarks.load import Load, run_load
from benchmarks.processes import PROXY_FOLDER, running_proxy, running_service
from benchmarks.serving_shop import Served, served_shop
from tests.support.ports import free_port
from turret.service.keys.keys import add_key, new_key, record

ITEMS, WORKERS = 2_000, 2
PEAK_MB, STALL_MS = 150.0, 100.0  # the bounds that are promised
QUICK_SECONDS = 1.5


def measure(options: Options) -> dict[str, Any]:
    """Make the attacks one after another."""
    names = options.given.attack
    chosen = [one for one in ATTACKS if names is None or one.name in names]
    if options.quick and names is None:
        chosen = list({one.group: one for one in reversed(ATTACKS)}.values())[::-1]
    shop, load, made = served_shop(ITEMS), os.getloadavg()[0], []
    for attack in chosen:
        made.append(carry_out(attack, shop, options.quick))
        print(json.dumps(made[-1]), file=sys.stderr, flush=True)
    return {
        "peak_mb_over_idle": max(one["peak_mb_over_idle"] for one in made),
        "longest_stall_ms": max(one["longest_stall_ms"] for one in made),
        "doors_opened": sum(one["opened"] for one in made),
        "bounds": {"peak_mb_over_idle": PEAK_MB, "longest_stall_ms": STALL_MS},
        "load": {"before": round(load, 2), "after": round(os.getloadavg()[0], 2)},
        "attacks": made,
    }


def carry_out(attack: Attack, shop: Served, quick: bool) -> dict[str, Any]:
    """Make one attack on a service of its own."""
    seconds = min(attack.seconds, QUICK_SECONDS) if quick else attack.seconds
    with tempfile.TemporaryDirectory(prefix="turret-abuse-") as folder, ExitStack() as stack:
        work, key = Path(folder), new_key("client")
        add_key(work / "keys.json", record("client", key, ("read", "write")))
        store = ("--store", f"sqlite:///{work}/history.sqlite")
        service = stack.enter_context(
            running_service(shop.bundles, WORKERS, *store, keys=str(work / "keys.json"), drain_delay="0")
        )
        bearer = (("Authorization", f"Bearer {key}"),)
        run_load(Load(service.url, "/v1/recommend", shop.bodies, seconds=1.0, headers=bearer))
        direct = _address(service.url)
        address = stack.enter_context(_edge(direct)) if attack.edge else direct
        scene = Scene(address, key, json.loads(shop.bodies[0])["history"], seconds, quick)
        with (
            watched(service.process.pid, direct, scene.recommend()) as figures,
            ThreadPoolExecutor(1, initializer=_yield_to_others) as pool,
        ):
            answers = pool.submit(attack.act, scene).result()
    refused = answers["429"] + answers["503"]
    return {
        "name": attack.name,
        "answers": dict(answers),
        "refused_share": round(refused / max(1, answers.total()), 3),
        "opened": answers["200"] if attack.is_shut else 0,
        **figures,
    }


def _yield_to_others() -> None:
    """Attack with low priority: attackers have machines of their own, and here there is one."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


def _address(url: str) -> Address:
    parts = urlsplit(url)
    return str(parts.hostname), int(parts.port or 80)


@contextmanager
def _edge(service: Address) -> Iterator[Address]:
    """The address of nginx in front of a service, with the limits of the production profile."""
    address = "127.0.0.1", free_port()
    limits = (PROXY_FOLDER / "limits.conf").read_text("utf-8")
    with (
        tempfile.TemporaryDirectory(prefix="turret-proxy-") as folder,
        running_proxy(Path(folder), [service[1]], f"127.0.0.1:{address[1]}", limits),
    ):
        yield address


if __name__ == "__main__":
    attacks = argparse.ArgumentParser(add_help=False)
    attacks.add_argument("--attack", action="append", choices=[one.name for one in ATTACKS], metavar="NAME")
    run(measure, needs_data=False, more=attacks, is_whole=lambda options: not options.given.attack)
