"""The parent's side: another library's training as a process that is asked for steps, one request a line."""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import Any

from benchmarks.peers.errors import PeerFailedError

CHILD = Path(__file__).parent / "child.py"
# Large pages, which torch makes use of when asked to: with large tensors it is up to a quarter faster.
LARGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}


class Peer:
    """A script of `scripts/`, run by `python` on the file `data`; see `child.py` for the protocol.

    It is started on entering, prepares itself while the parent goes on, and ends on leaving. While nobody
    asks, it waits and takes no time of the machine's.
    """

    def __init__(
        self,
        name: str,
        script: Path,
        python: Path,
        data: Path,
        settings: Mapping[str, Any],
        limit: float = 600.0,
    ) -> None:
        """Name what to run; no answer may take more than `limit` seconds."""
        self.name, self.limit = name, limit
        self.command = [str(python), "-P", str(CHILD), str(script), str(data), json.dumps(dict(settings))]
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed in `close`
        self.process: subprocess.Popen[str] | None = None
        self.prepared = False

    def __enter__(self) -> "Peer":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start the process, which prepares itself. Raises PeerFailedError when it can't be started."""
        try:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.errors,
                text=True,
                encoding="utf-8",
                env={**os.environ, **LARGE_PAGES},
            )
        except OSError as error:
            raise PeerFailedError(
                f"{self.name}: {self.command[0]} could not be started ({error.strerror}); delete its folder, "
                "and it is made again."
            ) from None

    def run(self, steps: int) -> tuple[int, float]:
        """Train `steps` steps: how many examples they had, and how many seconds they took."""
        answer = self.ask(steps)
        return int(answer["examples"]), float(answer["seconds"])

    def ask(self, steps: int) -> dict[str, Any]:
        """Train `steps` steps: all that the script says of them.

        Raises:
            PeerFailedError: the process is not there, has ended, took too long, or answered something else.
        """
        self.wait()
        answer = self._exchange(f"run {steps}\n")
        if not {"examples", "seconds"} <= answer.keys():
            raise PeerFailedError(
                f"{self.name}: a result has examples and seconds, and it answered {json.dumps(answer)}."
            )
        return answer

    def wait(self) -> None:
        """Wait until it is prepared. Raises PeerFailedError as `ask` does."""
        if not self.prepared:
            self._exchange("")
            self.prepared = True

    def _exchange(self, request: str) -> dict[str, Any]:
        """Send a line, and read one."""
        process = self.process
        if process is None or process.stdin is None or process.stdout is None:
            raise PeerFailedError(f"{self.name}: it was not started; use it in a `with` statement.")
        timer = Timer(self.limit, process.kill)
        timer.start()
        try:
            process.stdin.write(request)
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            in_time = timer.is_alive()
            timer.cancel()
        return self._read(line, in_time)

    def _read(self, line: str, in_time: bool) -> dict[str, Any]:
        if not in_time:
            raise PeerFailedError(f"{self.name}: no answer in {self.limit:.0f} s; ask for fewer steps.")
        if not line:
            raise PeerFailedError(f"{self.name}: its process ended: {self._last_words()}")
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise PeerFailedError(f"{self.name}: it answered {line.strip()!r}, which is no JSON object.")
        return answer

    def _last_words(self) -> str:
        """The last line of its standard error, which is the message of a traceback."""
        if self.process is not None:
            # It closes its standard output before it says why.
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=10)
        self.errors.seek(0)
        said = [line.strip() for line in self.errors if line.strip()]
        return said[-1] if said else "it said nothing on standard error."

    def close(self) -> None:
        """End the process; harmless where there is none."""
        if self.process is not None:
            try:
                # It ends when its input does; in the midst of something else it is made to.
                self.process.communicate(timeout=3)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.communicate()
            self.process = None
        self.errors.close()
