"""Benchmarks that need no data run to their end; `benchmarks.thresholds` judges some of their figures."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT

SCRIPTS = (
    "first_week",
    "operations proxy",
    "operations replicas",
    "preparation",
)


@pytest.mark.nightly
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_quick_run_prints_its_figures(name: str, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        *f"benchmarks.{name}".split(),
        "--quick",
        "--json",
        "--data",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    figures = json.loads(done.stdout.splitlines()[-1])
    assert (figures["benchmark"], figures["quick"]) == (re.split("[ .]", name)[-1], True)
