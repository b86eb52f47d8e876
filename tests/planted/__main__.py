"""`python -m tests.planted`: runs the tests of each fault with it, and names those that no test notices."""

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.planted.fault import Fault, all_faults
from tests.planted.plugin import VARIABLE
from tests.support.places import ROOT

_PYTEST = (sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider")
_SECONDS = 600
# pytest's exit statuses: all passed, some failed.
_OUTCOMES = {0: "SURVIVES", 1: "caught"}


def outcome(fault: Fault) -> str:
    """`caught`, `SURVIVES`, or ERROR with what pytest printed: the tests did not run."""
    tests = [str(ROOT / "tests" / test) for test in fault.tests]
    try:
        done = subprocess.run(
            [*_PYTEST, "-p", "tests.planted.plugin", "-m", "not process and not nightly", *tests],
            cwd=ROOT,
            env={**os.environ, VARIABLE: fault.name},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "caught"  # a fault may keep a loop from its end
    return _OUTCOMES.get(done.returncode) or f"ERROR {done.stdout[-1500:]}{done.stderr[-500:]}"


def main() -> int:
    """Print each fault's outcome; return 1 where one survives or its tests did not run."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    add = parser.add_argument
    add("words", nargs="*", metavar="WORDS", help="only faults with these in their name or module")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="at a time (the number of cores)")
    add("--json", action="store_true", help="end with one JSON object on the last line")
    options = parser.parse_args()
    every = all_faults().values()
    faults = [one for one in every if all(word in f"{one.name} {one.module}" for word in options.words)]
    outcomes: dict[str, str] = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        for fault, seen in zip(faults, pool.map(outcome, faults), strict=True):
            outcomes[fault.name] = seen.split()[0]
            count = f"{len(outcomes)}/{len(faults)}"
            print(f"{count} {seen:8} {fault.name} ({fault.module}:{fault.path})", flush=True)
    missed = [name for name, seen in outcomes.items() if seen != "caught"]
    print(f"{len(faults)} faults, {len(missed)} not caught")
    if options.json:
        print(json.dumps({"faults": len(faults), "not_caught": missed}))
    return int(bool(missed) or not faults)


if __name__ == "__main__":
    sys.exit(main())
