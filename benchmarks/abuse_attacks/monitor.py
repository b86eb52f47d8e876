"""Watching a service from a process of its own: its memory, how long `/livez` takes, an honest client.

Memory is what its processes hold together: anonymous resident pages (`RssAnon`), without those that a child
has from the supervisor by its fork. Pages of files are left out, as the system drops them when it needs room.
They are counted by the kernel, so that reading them every 25 ms costs the service nothing, which walking its
page tables (PSS, USS) does while memory is large. Peaks between two readings show in `VmHWM`.

`/livez` is asked of each worker on a connection that is kept, and on new connections. This process has a
higher priority than all others, where it may, and tells its own longest delay.
"""

import json
import subprocess
import sys
from contextlib import AbstractContextManager
from typing import Any

from benchmarks.abuse_attacks.target import Target

LONGEST_WAIT = 30.0  # seconds until a probe is given up, and after the attack for those under way


class Monitor(AbstractContextManager["Monitor"]):
    """Watches from entering to leaving; then `figures` has what was seen (see `summary.summed`)."""

    def __init__(self, target: Target) -> None:
        self.figures: dict[str, Any] = {}
        self._target = target

    def __enter__(self) -> "Monitor":
        """Begin; returns when the memory of the idle service is known and all probes are under way."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.abuse_attacks.monitor_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        settings = {
            "pid": self._target.process.pid,
            "address": self._target.direct,
            "key": self._target.reader,
            "request": self._target.recommendation(self._target.reader).decode(),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(settings) + "\n")
        self._process.stdin.flush()
        if self._process.stdout.readline() != "watching\n":
            self._process.kill()
            self._process.wait()
            raise RuntimeError("the watching process failed; its error is above")
        return self

    def __exit__(self, *error: object) -> None:
        """End, and take what was seen."""
        try:
            report, _ = self._process.communicate("end\n", timeout=3 * LONGEST_WAIT)
            self.figures = json.loads(report)
        finally:
            self._process.kill()
            self._process.wait()
