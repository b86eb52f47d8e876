"""The consumer of docs/histories.md: killed between the post and the commit, it counts each event once."""

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.command_line import environment
from tests.support.places import ROOT, python_blocks
from tests.support.redis_server import own_redis
from tests.support.service_calls import stored
from tests.support.service_process import Start
from tests.support.until import until

ENTRIES = 700  # the page reads 500 at a time
# The end of a consumer right before its commit, as a crash at that place is.
KILLED = "import os, signal, redis\nredis.Redis.xack = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"


@pytest.mark.process
def test_a_stream_is_counted_once_though_its_consumer_dies_before_each_commit(
    start: Start, tmp_path: Path
) -> None:
    (code,) = (block for block in python_blocks(ROOT / "docs" / "histories.md") if "xack" in block)
    service = start()
    with own_redis(tmp_path / "redis") as redis:
        entries = [f"{1_714_557_600_000 + number}-0" for number in range(ENTRIES)]
        for entry in entries:
            redis.ask("XADD", "clicks", entry, "user", "ann", "item", "101", "kind", "view")
        env = environment() | {"TURRET_URL": str(service.client.base_url), "STREAM_URL": redis.address}

        def consumer(before: str = "") -> subprocess.Popen[bytes]:
            return subprocess.Popen([sys.executable, "-c", before + code], env=env, stderr=subprocess.PIPE)

        for _ in range(2):
            with consumer(KILLED) as killed:
                assert killed.wait() == -signal.SIGKILL
        posted = Counter(stored(service, "ann"))
        assert posted.total() == 500, "the batch was posted, and posted again"
        with consumer() as last:
            try:
                until(lambda: len(stored(service, "ann")) == ENTRIES, "all entries are posted")
                until(lambda: redis.ask("XPENDING", "clicks", "turret")["pending"] == 0, "and committed")
            finally:
                last.send_signal(signal.SIGTERM)
        counts = Counter(stored(service, "ann"))
    assert counts == {f"clicks:{entry}": 1 for entry in entries}
