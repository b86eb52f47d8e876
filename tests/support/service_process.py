"""The real process of the service, for the tests that start, stop, kill and starve it."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2

from tests.support.places import ROOT
from tests.support.until import PATIENCE, until

START = """
import json, sys
from turret.data.errors import TurretError
from turret.service.process.launch import serve
from turret.service.settings import read_settings
try:
    serve(read_settings(**json.loads(sys.argv[1])))
except TurretError as error:
    sys.exit(f"turret: {error}")
"""
# In front of the service, which sets this before it imports what would start threads.
FIRST = "import os\nfrom turret.service.process import launch\nos.environ.update(launch._ENVIRONMENT)\n"
# No waiting for a proxy that isn't there, and versions of a test have nothing in common. Admin calls go to
# the same client, unless a test is about their port.
_QUICK = {"drain_delay": 0, "overlap_minimum": 0, "access_log": False, "admin_port": "same"}


def plain_client(url: str = "", **given: Any) -> httpx2.Client:
    """A client of plain HTTP: without the 27 ms that reading certificates takes."""
    return httpx2.Client(base_url=url, trust_env=False, verify=False, **{"timeout": PATIENCE, **given})


class Process:
    """A service with its history beside its bundles; `before` is code before its own, `prefix` a command."""

    def __init__(self, bundles: Path, before: str = "", prefix: Sequence[str] = (), **settings: Any) -> None:
        place = {"bundles": str(bundles), "port": 0, "store": f"sqlite:///{bundles}/../history.sqlite"}
        given = json.dumps({**place, **_QUICK, **settings})
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-c", before + START, given],
            cwd=ROOT,
            # One that is killed leaves its temporary files.
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(bundles.absolute().parent)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._said = b""
        assert self.process.stdout is not None
        self.greeting = self.process.stdout.readline()
        urls = re.findall(r"http://[\d.:]+", self.greeting)
        self.client = plain_client(urls[0] if urls else "")
        self.urls = urls

    def until_said(self, words: str) -> None:
        """Wait until words were written to standard error; `stop` gives all that was."""
        stream = self.process.stderr
        assert stream is not None
        os.set_blocking(stream.fileno(), False)

        def has_said() -> bool:
            with suppress(BlockingIOError):
                self._said += os.read(stream.fileno(), 1 << 20)
            return words.encode() in self._said

        until(has_said, f"the service says {words!r}")

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; gives the exit status and the errors, but for the warning that there are no keys."""
        self.client.close()
        self.process.send_signal(number)
        _, rest = self.process.communicate(timeout=PATIENCE)
        lines = (self._said.decode() + rest).splitlines(keepends=True)
        errors = (line for line in lines if "there are no API keys in" not in line)
        return self.process.returncode, "".join(errors)

    def close(self) -> None:
        """End it, if it hasn't ended, and let go of everything."""
        self.client.close()
        self.process.kill()
        with self.process:  # waits, and closes the pipes
            pass


Start = Callable[..., Process]
