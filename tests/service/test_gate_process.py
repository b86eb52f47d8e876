"""The gate in a process of its own: its limits, what reaches it and what doesn't, and how it may end."""

import asyncio
import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from textwrap import indent

import pytest

from tests.support.service_calls import children
from tests.support.until import PATIENCE, eventually
from turret.service.versions.gate_process import run_gate_in_process
from turret.service.versions.gate_report import GateReport, GateRequest

pytestmark = pytest.mark.process

# Python imports this module at its start, here that of the process of the gate.
SITE = """
import json, os, resource, signal, sys
from turret.service.versions import gate
real = gate.run_gate
def instead(asked):
{work}
    return real(asked)
gate.run_gate = instead
"""
TOO_MUCH = """
for number in range(3, 9):
    try: os.write(number, b"x" * 3_000_000)
    except OSError: pass
"""
Instead = Callable[..., None]


@pytest.fixture
def instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Instead:
    """Let the gate do some `work` before its own."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)

    def write(work: str) -> None:
        (folder / "sitecustomize.py").write_text(SITE.format(work=indent(work, "    ")))

    return write


def passed(root: Path, seconds: float = PATIENCE) -> GateReport:
    return asyncio.run(run_gate_in_process(GateRequest(root=root, version="v1"), seconds))


@pytest.fixture
def others() -> set[int]:
    """The processes that other tests have started."""
    return set(children(os.getpid()))


@pytest.mark.fault(63)
@pytest.mark.parametrize(
    ("work", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "ended by SIGKILL"),
        # Two gigabytes for a version of 20 KB; as a library that ends the process.
        ("try: bytearray(2 << 30)\nexcept MemoryError: os.abort()", "ended by SIGABRT"),
        ("raise RuntimeError('no new thread')", "ended with RuntimeError: no new thread"),
        ("sys.exit(7)", "ended with status 7"),
        ("os._exit(0)", "ended without an outcome"),
        (TOO_MUCH, "ended without an outcome"),
    ],
    ids=["killed", "memory", "error", "exit", "nothing", "too much"],
)
def test_a_check_that_fails_of_itself_is_refused_in_words(
    work: str, words: str, instead: Instead, bundles: Path
) -> None:
    instead(work)
    report = passed(bundles)
    assert (report.passed, report.reason) == (False, "crashed")
    assert f"checking version v1 {words}" in report.refusal


@pytest.mark.fault(63)
def test_a_check_that_takes_too_long_is_killed(instead: Instead, bundles: Path, others: set[int]) -> None:
    instead("signal.pause()")
    report = passed(bundles, seconds=0.5)
    assert report.reason == "crashed"
    assert "ended after 0.5 seconds, the limit (TURRET_GATE_SECONDS)" in report.refusal
    assert not set(children(os.getpid())) - others


@pytest.mark.fault(63)
async def test_a_check_ends_with_the_call_that_waits_for_it(
    instead: Instead, bundles: Path, tmp_path: Path, others: set[int]
) -> None:
    instead(f"open({str(tmp_path / 'begun')!r}, 'w').close()\nsignal.pause()")
    request = GateRequest(root=bundles, version="v1")
    call = asyncio.create_task(run_gate_in_process(request, PATIENCE))
    await eventually((tmp_path / "begun").exists, "the check has begun")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not set(children(os.getpid())) - others


TELL = """
from turret.tower.engines.access import engine_url
from turret.service.versions.memory import data_bytes
names = ("RLIMIT_DATA", "RLIMIT_CPU", "RLIMIT_CORE")
told = {{name: resource.getrlimit(getattr(resource, name))[0] for name in names}}
told["data"] = data_bytes()
told["descriptors"] = [os.path.realpath(f"/dev/fd/{{name}}") for name in os.listdir("/dev/fd")]
told["engine"] = engine_url("milvus")
told["nice"] = os.getpriority(os.PRIO_PROCESS, 0)
told["oom"] = int(open("/proc/self/oom_score_adj").read())
told["command"] = open("/proc/self/cmdline").read()
told["threads"] = os.environ["OMP_NUM_THREADS"]
told["ignored"] = [signal.getsignal(one) is signal.SIG_IGN for one in (signal.SIGINT, signal.SIGTERM)]
told["modules"] = [name for name in ("fastapi", "uvicorn", "starlette", "redis") if name in sys.modules]
json.dump(told, open({path!r}, "w"))
"""


@pytest.mark.fault(63)
def test_a_check_has_limits_and_nothing_of_its_caller_but_the_environment_and_the_access_to_engines(
    instead: Instead, bundles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("turret.tower.engines.access._urls", "milvus://me:a-secret@nowhere:1")
    instead(TELL.format(path=str(tmp_path / "told")))
    with open(tmp_path / "kept", "w") as kept:
        os.set_inheritable(kept.fileno(), True)
        assert passed(bundles).passed
    told = json.loads((tmp_path / "told").read_text())
    cores = os.cpu_count() or 1
    assert (told["RLIMIT_CPU"], told["RLIMIT_CORE"]) == (PATIENCE * cores, 0)
    assert 200e6 < told["RLIMIT_DATA"] - told["data"] < 300e6 + cores * 20e6
    assert told["RLIMIT_DATA"] != resource.RLIM_INFINITY
    assert (told["oom"], told["threads"], told["ignored"]) == (1000, "1", [True, True])
    assert told["nice"] == min(19, os.nice(0) + 5)
    assert not any("kept" in name or "socket" in name for name in told["descriptors"])
    assert told["engine"] == "milvus://me:a-secret@nowhere:1"
    assert "a-secret" not in told["command"]
    assert told["modules"] == []


def test_a_process_that_can_not_be_started_is_a_failed_check(
    bundles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", str(bundles / "nothing"))
    assert "ended before its start (No such file or directory)" in passed(bundles).refusal
