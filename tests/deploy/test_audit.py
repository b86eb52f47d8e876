"""`make audit`, with recorded output of pip-audit."""

import json
import subprocess
from typing import Any

import pytest

from deploy import audit

FINE = {"name": "fine", "version": "1", "vulns": []}
BROKEN = {"name": "broken", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}
UNKNOWN = {"name": "unknown", "skip_reason": "Dependency not found on PyPI"}


def listed(*packages: dict[str, Any]) -> str:
    return json.dumps({"dependencies": packages})


@pytest.mark.parametrize(
    ("stdout", "stderr", "status", "words"),
    [
        (listed(FINE, UNKNOWN), "", 0, "1 packages compared, 0 with"),
        (listed(FINE, UNKNOWN), "", 0, "not compared: unknown"),
        (listed(FINE, BROKEN), "", 1, "broken 2: PYSEC-1, fixed in 3"),
        ("", "Traceback\nConnectionError: no network", 2, "no network"),
        (listed(UNKNOWN, UNKNOWN), "", 2, "a mirror without vulnerability data"),
    ],
)
def test_what_is_known_is_named_and_nobody_to_ask_is_not_the_same_as_nothing_found(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stdout: str,
    stderr: str,
    status: int,
    words: str,
) -> None:
    result: Any = subprocess.CompletedProcess([], 0, stdout, stderr)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: result)
    assert audit.main() == status
    assert words in "".join(capsys.readouterr())
