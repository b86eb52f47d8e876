import os
import subprocess
import sys

import pytest

from turret.training.distributed.launch import launch_name

PRINT = "from turret.training.distributed.launch import launch_name; print(launch_name())"


def test_without_torchrun_there_is_no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert launch_name() is None


def test_processes_of_one_parent_have_one_launch_and_others_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """All with the same --rdzv-id."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "spring")
    command = [sys.executable, "-c", PRINT]
    first, second = (subprocess.check_output(command, text=True).strip() for _ in range(2))
    assert first == second
    assert first.startswith("spring ")
    assert f" {os.getpid()} " in first
    assert first != launch_name()
