"""What all benchmark scripts share: their options, and how a result is printed and kept."""

import argparse
import json
import os
import platform
import re
import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

DATA = Path("../shared/data")
RESULTS = Path(__file__).parent / "results"
PACKAGES = ("turret", "torch", "numpy", "numba", "polars", "faiss-cpu", "onnxruntime")


@dataclass(frozen=True)
class Options:
    """`data` is the folder of the data sets; `quick` asks for a run of under a minute.

    `given` has all options, those that only one script has among them. With `is_trial` no result is kept.
    """

    data: Path
    quick: bool
    as_json: bool
    given: argparse.Namespace = field(default_factory=argparse.Namespace)
    is_trial: bool = False


def read_options(
    description: str | None, needs_data: bool = True, more: argparse.ArgumentParser | None = None
) -> Options:
    """Read `--data DIR`, `--quick`, `--trial`, `--json` and the options of `more` from the command line.

    Without `needs_data` the folder need not be there: the script makes its own data.
    """
    parser = argparse.ArgumentParser(description=description, parents=[more] if more else [])
    parser.add_argument("--data", type=Path, default=DATA, help=f"the folder of the data sets ({DATA})")
    parser.add_argument("--quick", action="store_true", help="under a minute; the figures are not claims")
    parser.add_argument("--trial", action="store_true", help="keep no result")
    parser.add_argument("--json", action="store_true", help="end with one JSON object on the last line")
    given = parser.parse_args()
    if needs_data and not given.data.is_dir():
        parser.error(f"--data {given.data}: there is no such folder; name the one with the data sets")
    return Options(given.data, given.quick, given.json, given, given.trial)


def machine() -> dict[str, Any]:
    """What the figures were measured on, and with which versions."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
    }


def peak_memory_mb() -> float:
    """The most memory that this process has held so far, in megabytes (10^6 bytes).

    Linux says it in `/proc`. `ru_maxrss`, which is all that other systems have, begins with what the parent
    of the process held, and counts kilobytes here and bytes on macOS.
    """
    status = Path("/proc/self/status")
    if status.exists():
        (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", status.read_text("ascii"))
        return int(kilobytes) * 1024 / 1e6
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 1e6 if sys.platform == "darwin" else most * 1024 / 1e6


def result(name: str) -> dict[str, Any]:
    """The kept result of a benchmark."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def finish(name: str, options: Options, figures: Mapping[str, Any], keep: bool = True) -> None:
    """Write the figures with the machine to `results/NAME.json`, and print them if JSON was asked for.

    A quick run or a trial is not kept, nor is one without `keep`: what is kept is what is claimed.
    """
    result = {"benchmark": name, "quick": options.quick, **figures, "machine": machine()}
    if keep and not options.quick and not options.is_trial:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if options.as_json:
        print(json.dumps(result))
