import json
import re
import subprocess
import sys

from typer.testing import CliRunner, Result

import turret.cli
from tests.support.places import ROOT

SHOP = ("--users", "200k", "--items", "100k", "--events", "10M")
MACHINE = ("--cores", "2", "--memory", "16", "--disk", "200")


def invoke(*words: str) -> Result:
    return CliRunner().invoke(turret.cli.app, ["plan", *words])


def test_a_plan_is_printed_with_limits_commands_and_assumptions() -> None:
    shown = invoke(*SHOP, *MACHINE, "--requests", "100")
    assert shown.exit_code == 0, shown.output
    for text in (
        "200,000 users, 100,000 items, 10,000,000 events, 100 requests/s; youtubednn, dimension 64",
        "│ preparation",
        "│ histories in SQLite",
        "turret data prepare LOG --to var/prepared",
        "Assumptions:",
        "measured on",
    ):
        assert text in shown.stdout
    assert "Does not fit" not in shown.stdout


def test_a_plan_beyond_the_measured_sizes_says_so() -> None:
    shown = invoke("--users", "1e9", "--items", "1e9", "--events", "1e11", *MACHINE)
    (line,) = re.findall(r"^training: measured up to [0-9,]+ items; beyond.*$", shown.stdout, re.MULTILINE)
    assert line.endswith("beyond that computed")
    assert "Does not fit: service needs" in shown.stdout
    assert "(exceeded)" in shown.stdout


def test_a_plan_is_json_too() -> None:
    plan = json.loads(invoke(*SHOP, *MACHINE, "--dimension", "32", "--json").stdout)
    assert plan["settings"]["dimension"] == 32
    assert plan["machine"] == {"cores": 2, "memory": 16e9, "disk": 200e9}
    assert set(plan["parts"]) >= {"preparation", "training", "export and index", "service", "one backup"}
    assert plan["parts"]["preparation"]["seconds"] > 1


def test_the_machine_is_this_one_by_default() -> None:
    machine = json.loads(invoke(*SHOP, "--json").stdout)["machine"]
    assert machine["cores"] >= 1
    assert min(machine["memory"], machine["disk"]) > 1e8


def test_planning_loads_no_heavy_package() -> None:
    code = (
        "import sys, turret.cli\n"
        f"sys.argv = ['turret', 'plan', *{SHOP!r}]\n"
        "try:\n    turret.cli.main()\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "heavy = {'torch', 'polars', 'numba', 'matplotlib', 'fastapi', 'faiss', 'onnxruntime', 'numpy'}\n"
        "print('LOADED', *sorted(set(sys.modules) & heavy))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "LOADED"
