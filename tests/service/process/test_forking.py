import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.service_process import HERE
from turret.service.process.forking import describe_exit, fork


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_process_ends_with_its_work(tmp_path: Path) -> None:
    assert ended(fork((tmp_path / "made").touch)) == 0
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize("raised", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_ends_only_the_child(raised: type[BaseException]) -> None:
    def work() -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # where the traceback goes
        raise raised("there")

    assert ended(fork(work)) == 1


def test_all_descriptors_but_the_named_are_closed() -> None:
    code = """
import os
from turret.service.process.forking import close_all_but
reading, writing = os.pipe()
close_all_but(writing)
for descriptor in (0, 1, 2, reading, writing):
    try:
        os.fstat(descriptor)
        print("open")
    except OSError:
        print("closed")
"""
    run = subprocess.run([sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["open", "open", "open", "closed", "open"]


@pytest.mark.parametrize(
    ("code", "words"), [(-9, "by SIGKILL"), (3, "with status 3"), (-40, "by signal 40"), (-64, "by SIGRTMAX")]
)
def test_exit_codes_are_described(code: int, words: str) -> None:
    assert describe_exit(code) == words
