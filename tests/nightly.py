"""Everything that is too long for every change: `make nightly`.

The benchmarks that have a threshold, while the machine is quiet; then all tests with all their rounds, and
the planted faults. The outcome is written to benchmarks/results/nightly.json, with the commit that it
belongs to.
"""

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

from tests.support.places import ROOT

RESULT = ROOT / "benchmarks" / "results" / "nightly.json"
_PYTEST = ("-q", "-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder", "--thorough", "--durations=30")


def _run(*words: str) -> str:
    """Run a module, show its output as it comes, and return the last line."""
    print(f"nightly: {' '.join(words)}", flush=True)
    last = ""
    command = [sys.executable, "-m", *words]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for last in process.stdout:
            print(last, end="", flush=True)
    return last


def _commit() -> str:
    words = ["git", "describe", "--always", "--abbrev=40", "--dirty"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _tests(report: Path) -> dict[str, Any]:
    """Run every test; count the outcomes, and name those that failed."""
    seed = random.SystemRandom().randrange(2**32)
    _run("pytest", *_PYTEST, f"--hypothesis-seed={seed}", f"--junit-xml={report}")
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in suite.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    counts = {name: int(suite.get(name, 0)) for name in ("tests", "skipped")}
    return {"hypothesis_seed": seed, **counts, "failed": failed}


def main() -> int:
    """Run all three, write the result, and give 1 where something failed."""
    begun = time.time()
    result: dict[str, Any] = {"commit": _commit(), "begun": time.strftime("%FT%TZ", time.gmtime(begun))}
    result["benchmarks"] = json.loads(_run("benchmarks.thresholds", "--json"))
    with TemporaryDirectory() as folder:
        result["tests"] = _tests(Path(folder) / "junit.xml")
    result["planted"] = json.loads(_run("tests.planted", "--json"))
    result["minutes"] = round((time.time() - begun) / 60)
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    wrong = (result["benchmarks"]["missed"], result["tests"]["failed"], result["planted"]["not_caught"])
    return int(any(wrong))


if __name__ == "__main__":
    sys.exit(main())
