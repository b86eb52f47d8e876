import subprocess
import sys

import pytest

from tests.support.places import ROOT
from turret.service.telemetry.traces import open_traces, trace_of

WITHOUT = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "opentelemetry":
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
from turret.data.errors import TurretError
from turret.service.telemetry.traces import open_traces
try:
    print(open_traces(True if sys.argv[1] == "asked" else None, 0.1))
except TurretError as error:
    print(error)
"""


def run(code: str, *arguments: str, **environment: str) -> str:
    """Run Python without anything of this process's environment."""
    command = [sys.executable, "-c", code, *arguments]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@pytest.mark.parametrize(
    ("parent", "trace"),
    [
        (f"00-{'a' * 32}-{'b' * 16}-01", "a" * 32),
        (f"01-{'a' * 32}-{'b' * 16}-01-more", "a" * 32),
        (f"ff-{'a' * 32}-{'b' * 16}-01", None),
        (f"00-{'0' * 32}-{'b' * 16}-01", None),
        (f"00-{'a' * 32}-{'0' * 16}-01", None),
        (f"00-{'A' * 32}-{'b' * 16}-01", None),
        ("nonsense", None),
    ],
)
def test_a_trace_is_read_from_its_header(parent: str, trace: str | None) -> None:
    assert trace_of(parent.encode()) == trace


def test_the_sdk_is_not_imported_without_traces() -> None:
    """Of its SDK; some libraries import its small interface wherever it is installed."""
    loaded = "[n for n in sys.modules if n.startswith('opentelemetry.sdk')]"
    code = f"import sys, turret.service.http.app; print({loaded})"
    assert run(code) == "[]"


@pytest.mark.parametrize("asked", [False, None])
def test_traces_are_off_by_default(monkeypatch: pytest.MonkeyPatch, asked: bool | None) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", raising=False)
    assert open_traces(asked, 1.0) is None


def test_false_wins_over_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    assert open_traces(False, 1.0) is None


def test_traces_without_the_extra_name_the_remedy() -> None:
    assert run(WITHOUT, "asked") == (
        "traces is true, but OpenTelemetry is not installed; "
        "run: pip install 'turret[otel]', or set TURRET_TRACES=false"
    )
    named = run(WITHOUT, "unasked", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1")
    assert named.startswith("OTEL_EXPORTER_OTLP_ENDPOINT is set, but")
    assert run(WITHOUT, "unasked") == "None"
