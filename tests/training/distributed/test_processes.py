import os
import subprocess
import sys

import pytest

from tests.support.ports import free_port

ALONE = """
from datetime import timedelta
from turret.training.distributed import processes
processes.MEETING = timedelta(seconds=0.5)
processes.Processes.joined()
"""


@pytest.mark.nightly  # a process that imports torch
def test_a_process_that_meets_no_other_ends_with_a_sentence() -> None:
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "RANK": "0", "WORLD_SIZE": "2"}
    ended = subprocess.run(
        [sys.executable, "-c", ALONE], env={**os.environ, **place}, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 1
    assert ended.stderr.endswith(
        "turret: the other processes of this training were not met within 0.5 s; start all of them again "
        "with torchrun, with --resume if the run has begun.\n"
    )
