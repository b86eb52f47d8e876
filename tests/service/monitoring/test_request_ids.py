import re
import subprocess
import sys

import pytest

from tests.support.places import ROOT
from turret.service.monitoring.request_ids import request_id


@pytest.mark.parametrize("given", [b"a", b"~!#", b"x" * 128, b"6f1d-\"'<>"])
def test_a_usable_id_is_kept(given: bytes) -> None:
    assert request_id(given) == given.decode()


@pytest.mark.parametrize(
    "given", [None, b"", b"x" * 129, b"two words", b"line\nend", b"\x1b[2J", "é".encode(), b"a\x00"]
)
def test_any_other_is_replaced(given: bytes | None) -> None:
    assert re.fullmatch("[0-9a-f]{16}-[0-9a-f]+", request_id(given))


def test_new_ids_differ() -> None:
    assert len({request_id(None) for _ in range(1000)}) == 1000


def test_a_process_that_was_forked_makes_ids_of_its_own() -> None:
    code = """
import os
from turret.service.monitoring.request_ids import request_id
print(request_id(None), flush=True)
if os.fork() == 0:
    print(request_id(None), flush=True)
    os._exit(0)
os.wait()
"""
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30)
    parent, child = (line.split("-")[0] for line in run.stdout.splitlines())
    assert parent != child
