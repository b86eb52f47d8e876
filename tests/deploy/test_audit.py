"""`make audit`, with recorded output of pip-audit."""

import json
import subprocess
from typing import Any

import pytest

from deploy import audit

FINE = {"name": "fine", "version": "1", "vulns": []}
BROKEN = {"name": "broken", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}
UNKNOWN = {"name": "unknown", "skip_reason": "Dependency not found on PyPI"}


def answered(monkeypatch: pytest.MonkeyPatch, stdout: str, stderr: str = "") -> int:
    result: Any = subprocess.CompletedProcess([], 0, stdout, stderr)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: result)
    return audit.main()


def test_nothing_known_is_fine(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert answered(monkeypatch, json.dumps({"dependencies": [FINE, UNKNOWN]})) == 0
    shown = capsys.readouterr().out
    assert "1 packages compared, 0 with" in shown
    assert "not compared: unknown" in shown


def test_what_is_known_is_named_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answered(monkeypatch, json.dumps({"dependencies": [FINE, BROKEN]})) == 1
    assert "broken 2: PYSEC-1, fixed in 3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("stdout", "stderr", "words"),
    [
        ("", "Traceback\nConnectionError: no network", "no network"),
        (json.dumps({"dependencies": [UNKNOWN, UNKNOWN]}), "", "a mirror without vulnerability data"),
    ],
)
def test_nobody_to_ask_is_not_the_same_as_nothing_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stdout: str, stderr: str, words: str
) -> None:
    assert answered(monkeypatch, stdout, stderr) == 2
    assert words in capsys.readouterr().err
