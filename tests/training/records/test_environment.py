"""The versions, the machine and the git state behind a run."""

import getpass
import json
import socket
import subprocess
from pathlib import Path

import pytest
import torch

from turret.training.records import environment as module
from turret.training.records.environment import (
    ENVIRONMENT,
    environment,
    git_state,
    load_environment,
    record_environment,
)


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    done = subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def stored(folder: Path) -> list[dict[str, object]]:
    entries: list[dict[str, object]] = json.loads((folder / ENVIRONMENT).read_text())["environments"]
    return entries


def test_the_commit_is_recorded_and_whether_tracked_files_differ(tmp_path: Path) -> None:
    """A file that git does not track changes nothing; outside a repository there is no state."""
    assert git_state(tmp_path) is None
    git(tmp_path, "init", "-q")
    assert git_state(tmp_path) is None
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-qm", "first")
    (tmp_path / "b").write_text("1")
    state = {"commit": git(tmp_path, "rev-parse", "HEAD"), "dirty": False}
    assert git_state(tmp_path) == state
    (tmp_path / "a").write_text("2")
    assert git_state(tmp_path) == {**state, "dirty": True}


def test_without_git_there_is_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(tmp_path) is None


def test_versions_and_machine_are_recorded_without_names_of_host_and_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor any environment variable."""
    monkeypatch.setenv("SOME_SECRET", "xyzzy-4711")
    monkeypatch.chdir(tmp_path)
    record_environment(tmp_path, 0)
    (entry,) = stored(tmp_path)
    assert entry == {"from_step": 0, **environment()}
    current = environment()
    assert current["versions"]["torch"] == torch.__version__.partition("+")[0] or current["versions"]["torch"]
    assert current["git"] is None
    assert current["machine"]["cores"] >= 1
    assert current["machine"]["memory_gb"] > 0
    text = (tmp_path / ENVIRONMENT).read_text()
    assert "xyzzy" not in text
    assert f'"{getpass.getuser()}"' not in text
    assert socket.gethostname() not in text


def test_a_resumed_training_adds_an_environment_only_where_it_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = {"python": "3.11"}
    monkeypatch.setattr(module, "environment", lambda: now)
    record_environment(tmp_path, 0)
    record_environment(tmp_path, 5)
    now = {"python": "3.12"}
    record_environment(tmp_path, 9)
    assert stored(tmp_path) == [{"from_step": 0, "python": "3.11"}, {"from_step": 9, "python": "3.12"}]
    record_environment(tmp_path, 0)
    assert stored(tmp_path) == [{"from_step": 0, "python": "3.12"}]


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"environments": []}', '{"environments": [1]}'])
def test_a_damaged_file_is_replaced(tmp_path: Path, content: str) -> None:
    """It must not keep a training from going on."""
    (tmp_path / ENVIRONMENT).write_text(content)
    record_environment(tmp_path, 3)
    assert stored(tmp_path)[-1]["from_step"] == 3


def test_the_last_environment_is_read_and_a_damaged_record_is_none(tmp_path: Path) -> None:
    assert load_environment(tmp_path) is None
    record_environment(tmp_path, 0)
    assert load_environment(tmp_path) == stored(tmp_path)[-1]
    for text in ("{", "[]", '{"environments": []}', '{"environments": [{"machine": 5, "versions": {}}]}'):
        (tmp_path / ENVIRONMENT).write_text(text)
        assert load_environment(tmp_path) is None
