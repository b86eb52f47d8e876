"""What attacks on the running service cost everybody else, and which doors they open.

Each attack has a service of its own: `turret serve` with two workers and a file of keys, on a thousand items.
Beside it, another process looks at the memory of the service, asks for `/livez` and is an honest client
(`benchmarks/abuse_attacks/monitor.py`). `peak_mb_over_idle` is the most memory that an attack took, and
`longest_stall_ms` the longest that `/livez` took, on a machine that should have nothing else to do: `load` is
what it had. What comes in floods comes through nginx with the limits of the production profile.
`doors_opened` counts the answers that let in somebody who should not have been.

What each attack gave is told on standard error at once. `--attack NAME`, repeatable, makes single attacks and
keeps no result; `--quick` makes the first of each point.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.abuse_attacks.attack import Attack, NotCarriedOutError, Outcome, Scene
from benchmarks.abuse_attacks.monitor import Monitor
from benchmarks.abuse_attacks.registry import ATTACKS, NOT_ATTACKS
from benchmarks.abuse_attacks.shop import publish_shop
from benchmarks.abuse_attacks.summary import summary
from benchmarks.abuse_attacks.target import RefusedToStartError, running_target, warm_up
from benchmarks.harness import Options, finish, read_options

PEAK_MB, STALL_MS = 150.0, 100.0  # the bounds that are promised
_QUICK_SECONDS = 1.5


def main() -> None:
    """Run the benchmark."""
    more = argparse.ArgumentParser(add_help=False)
    more.add_argument("--attack", action="append", choices=[one.name for one in ATTACKS], metavar="NAME")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no service is left behind
    options = read_options(__doc__, needs_data=False, more=more)
    chosen = choose(options.given.attack, options.quick)
    figures = measure(chosen, options)
    show(figures)
    finish("abuse", options, figures, keep=not options.given.attack)


def choose(names: Sequence[str] | None, quick: bool) -> list[Attack]:
    """The attacks that are named, else all; in a quick run the first of each point."""
    if names:
        return [one for one in ATTACKS if one.name in names]
    return list({one.point: one for one in reversed(ATTACKS)}.values())[::-1] if quick else list(ATTACKS)


def measure(attacks: Sequence[Attack], options: Options) -> dict[str, Any]:
    """Make the attacks one after another."""
    load = os.getloadavg()[0]
    began = time.monotonic()
    console = Console(stderr=True)
    made = []
    with tempfile.TemporaryDirectory(prefix="turret-abuse-shop-") as folder:
        shop = Path(folder) / "bundles"
        publish_shop(shop)
        for attack in attacks:
            console.print(f"{attack.point:>2} {attack.name}", highlight=False)
            start = time.monotonic()
            entry = carry_out(attack, shop, options.quick)
            made.append(entry | {"seconds": round(time.monotonic() - start, 1)})
            print(json.dumps(made[-1]), file=sys.stderr, flush=True)
    return {
        **summary(made),
        "not_attacks": {str(point): reason for point, reason in NOT_ATTACKS.items()},
        "bounds": {"peak_mb_over_idle": PEAK_MB, "longest_stall_ms": STALL_MS},
        "seconds": round(time.monotonic() - began, 1),
        "load": {"before": round(load, 2), "after": round(os.getloadavg()[0], 2)},
    }


def carry_out(attack: Attack, shop: Path, quick: bool) -> dict[str, Any]:
    """Make one attack on a service of its own; gives its figures, or why it couldn't be made."""
    entry: dict[str, Any] = {"name": attack.name, "point": attack.point, "stall_counts": attack.stall_counts}
    seconds = min(attack.seconds, _QUICK_SECONDS) if quick else attack.seconds
    make = attack.prepare
    prepare = None if make is None else lambda work: make(work, quick)
    try:
        with running_target(shop, attack.settings, attack.open_files, prepare, attack.edge) as target:
            warm_up(target)
            with Monitor(target) as monitor:
                outcome = _in_the_background(attack, Scene(target, seconds, quick))
        return entry | _as_entry(outcome) | monitor.figures
    except RefusedToStartError as error:
        if not attack.may_refuse:
            return entry | {"error": f"the service did not start: {error}"}
        refused = Outcome(notes={"refused_to_start": str(error)})
        return entry | _as_entry(refused) | {"peak_mb_over_idle": 0.0, "longest_stall_ms": 0.0}
    except NotCarriedOutError as error:
        return entry | {"error": str(error)}


def _in_the_background(attack: Attack, scene: Scene) -> Outcome:
    """Attack from a thread of low priority: attackers have machines of their own, and here there is one."""
    results: list[Outcome | BaseException] = []

    def act() -> None:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
        try:
            results.append(attack.act(scene))
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=act)
    thread.start()
    thread.join()
    (result,) = results
    if isinstance(result, BaseException):
        raise result
    return result


def _as_entry(outcome: Outcome) -> dict[str, Any]:
    return {
        "answers": dict(outcome.answers),
        "opened": outcome.opened,
        "held": outcome.held,
        "notes": outcome.notes,
    }


def show(figures: dict[str, Any]) -> None:
    """Print a table for people."""
    table = Table(title="Attacks on a service of two workers")
    for heading in (
        "point",
        "attack",
        "MB over idle",
        "longest /livez, ms",
        "honest 200",
        "opened",
        "answers",
    ):
        table.add_column(heading, justify="left" if heading in ("attack", "answers") else "right")
    for one in figures["attacks"]:
        if "error" in one:
            table.add_row(str(one["point"]), one["name"], "-", "-", "-", "-", f"not made: {one['error']}")
            continue
        stall = f"{one['longest_stall_ms']:.0f}" + ("" if one["stall_counts"] else " (not counted)")
        share = one.get("honest", {}).get("share_200")
        answers = ", ".join(f"{count} {status}" for status, count in one["answers"].items())
        table.add_row(
            str(one["point"]),
            one["name"] + ("" if one["held"] else " !"),
            f"{one['peak_mb_over_idle']:.0f}",
            stall,
            "-" if share is None else f"{share:.3f}",
            str(one["opened"]),
            answers,
        )
    Console(width=150).print(table)
    print(
        f"{figures['peak_mb_over_idle']:.0f} MB over idle, /livez took up to "
        f"{figures['longest_stall_ms']:.0f} ms, {figures['doors_opened']} doors opened"
    )


if __name__ == "__main__":
    main()
