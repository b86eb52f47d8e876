"""The log of answers: a bounded queue behind the event loop, and a thread that writes files of minutes."""

import asyncio
import logging
import threading
import uuid
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from turret.data.answers.form import MINUTE, minute_file, visitor_of
from turret.data.errors import TurretError
from turret.data.files import scratch_folder
from turret.service.answer_log.entries import LoggedAnswer
from turret.service.answer_log.files import AnswerFiles, new_writer
from turret.service.answer_log.rows import table_of
from turret.service.errors import HistoryUnavailableError
from turret.service.stores.contract import now_ms

QUEUED_BYTES = 64_000_000  # of answers that wait while the disk or the object store is slow
PAUSE_SECONDS, FIRST_TIDY_SECONDS, TIDY_SECONDS = 0.5, 60.0, 3_600.0
LATE_MS = 5_000  # after the end of a minute, its file appears
_GROUP_ROWS = 20_000  # of a row group, which is in memory until it is written
_RETRIED = 60  # complete files that wait for an object store
_log = logging.getLogger("turret.answers")
Route = tuple[str, str]
"""The route of an answer, live or canary, and its version."""


class _Complete(NamedTuple):
    name: str
    path: Path
    rows: int
    counts: Counter[Route]


class _Minute:
    """The file of a minute (since 1970) that is being written."""

    def __init__(self, number: int, path: Path) -> None:
        self.number, self.path, self.rows, self.counts = number, path, 0, Counter[Route]()
        self._writer = new_writer(path)
        self._waiting: list[pa.Table] = []

    def add(self, table: pa.Table) -> None:
        self.rows += len(table)
        self.counts.update(zip(table["route"].to_pylist(), table["version"].to_pylist(), strict=True))
        self._waiting.append(table)
        if sum(map(len, self._waiting)) >= _GROUP_ROWS:
            self._write()

    def close(self) -> None:
        self._write()
        self._writer.close()

    def _write(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting))
            self._waiting = []


class AnswerLog:
    """Writes the answers of a worker into `files`, with the names of visitors under `key`.

    `offer` never waits and never raises: beyond `QUEUED_BYTES` answers are dropped. `count` receives the
    outcome, `written` or `dropped`, and the number of answers; every answer that is offered is counted once.
    `count_routes` receives the written answers by route and version.
    The worker 0 keeps `days` and `most_bytes` of all files, and removes the rows of forgotten visitors.
    """

    def __init__(
        self,
        files: AnswerFiles,
        key: bytes,
        count: Callable[[str, int], object],
        worker: int = 0,
        days: int | None = None,
        most_bytes: int | None = None,
        clock: Callable[[], int] = now_ms,
        count_routes: Callable[[Mapping[Route, int]], object] = len,
    ) -> None:
        self._files, self._key, self._count, self._worker = files, key, count, worker
        self._days, self._most_bytes, self._clock = days, most_bytes, clock
        self._count_routes = count_routes
        self._waiting: deque[LoggedAnswer] = deque()
        # The loop alone adds to `_offered`, and the thread to `_taken`, so that no sum is lost.
        self._offered = self._taken = 0
        self._current: _Minute | None = None
        self._complete: deque[_Complete] = deque()
        self._refused = self._lost = self._told = 0
        self._reason, self._last_minute, self._failed_at = "", 0, 0
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []
        self._stack = ExitStack()
        self._scratch = self._stack.enter_context(scratch_folder(files.scratch))

    def start(self) -> None:
        """Start the threads that write, and remove."""
        works = [self._write_all, self._tidy_all] if self._worker == 0 else [self._write_all]
        for work in works:
            self._threads.append(threading.Thread(target=work, name="answers", daemon=True))
            self._threads[-1].start()

    def offer(self, answer: LoggedAnswer) -> None:
        """Queue an answer, or drop it, in the event loop's thread."""
        if self._offered - self._taken > QUEUED_BYTES:
            self._refused += 1
            self._count("dropped", 1)
            return
        self._offered += answer.size
        self._waiting.append(answer)

    async def forget(self, user: str) -> None:
        """Have the rows of a user removed within hours. Raises HistoryUnavailableError."""
        try:
            await asyncio.to_thread(self._files.mark, visitor_of(user, self._key), self._clock())
        except (OSError, TurretError) as error:
            message = f"the log of answers can't note that it has to forget the user: {error}; retry"
            raise HistoryUnavailableError(message, 1.0) from None

    def close(self, seconds: float = 10.0) -> None:
        """Write all waiting answers, within `seconds`, and stop."""
        self._ending.set()
        if not self._threads:  # a log that was not started
            self.turn(is_last=True)
        for thread in self._threads:
            thread.join(seconds)
        if any(thread.is_alive() for thread in self._threads):
            _log.warning("the log of answers didn't take the last answers within %g seconds", seconds)
        self._stack.close()

    def turn(self, is_last: bool = False) -> None:
        """Write the answers that wait, and let the files of past minutes appear."""
        answers: list[LoggedAnswer] = []
        for _ in range(len(self._waiting)):
            answers.append(self._waiting.popleft())
            self._taken += answers[-1].size
        for number, of_minute in groupby(answers, key=lambda answer: answer.time // MINUTE):
            self._add(number, list(of_minute))
        if self._current is not None and (is_last or self._is_over(self._current)):
            self._end(self._current)
        self._publish(is_last)
        self._tell(is_last)

    def tidy(self) -> None:
        """Remove old files, and the rows of forgotten visitors."""
        now = self._clock()
        try:
            self._files.expire(self._days, self._most_bytes, now)
            self._files.forget(now)
        except Exception as error:
            _log.warning("the log of answers can't be tidied, which is tried again in an hour: %s", error)

    def _write_all(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._ending.wait(PAUSE_SECONDS)
            self.turn(is_last)

    def _tidy_all(self) -> None:
        pause = FIRST_TIDY_SECONDS
        while not self._ending.wait(pause):
            self.tidy()
            pause = TIDY_SECONDS

    def _add(self, number: int, answers: Sequence[LoggedAnswer]) -> None:
        """Write answers into the file of their minute, or late ones into that of a later minute."""
        if self._current is not None and number > self._current.number:
            self._end(self._current)
        try:
            table = table_of(answers, self._key)
            minute = self._current or self._begin(number)
        except Exception as error:
            self._lose(len(answers), error)
            return
        self._current = minute
        try:
            minute.add(table)
        except Exception as error:  # the disk is full
            self._current = None
            self._lose(minute.rows, error, minute.path)

    def _begin(self, number: int) -> _Minute:
        """Begin the file of a minute. Raises OSError."""
        if not self._scratch.is_dir():  # somebody has removed the folder of the log
            if self._files.scratch is not None:
                self._files.scratch.mkdir(0o700, parents=True, exist_ok=True)
            self._scratch = self._stack.enter_context(scratch_folder(self._files.scratch))
        return _Minute(number, self._scratch / uuid.uuid4().hex)

    def _is_over(self, minute: _Minute) -> bool:
        """Whether the time of a minute is over, or has not come yet, as the clock was set."""
        return not 0 <= self._clock() - minute.number * MINUTE < MINUTE + LATE_MS

    def _end(self, minute: _Minute) -> None:
        self._current = None
        try:
            minute.close()
        except Exception as error:
            self._lose(minute.rows, error, minute.path)
            return
        worker = f"{self._worker}-{uuid.uuid4().hex[:8]}"  # no two files have one name, also after a restart
        name = minute_file(Path(), minute.number * MINUTE, worker).as_posix()
        self._complete.append(_Complete(name, minute.path, minute.rows, minute.counts))

    def _publish(self, is_last: bool) -> None:
        """Let complete files appear; after a failure they are tried again in a minute."""
        now = self._clock()
        while self._complete and (is_last or abs(now - self._failed_at) >= MINUTE):
            file = self._complete.popleft()
            try:
                self._files.publish(file.name, file.path)
            except Exception as error:
                self._failed_at = now if file.path.exists() else self._failed_at
                if is_last or len(self._complete) >= _RETRIED or not file.path.exists():
                    self._lose(file.rows, error, file.path)
                else:
                    self._complete.appendleft(file)
            else:
                self._count("written", file.rows)
                self._count_routes(file.counts)
                file.path.unlink(missing_ok=True)

    def _lose(self, rows: int, error: Exception, file: Path | None = None) -> None:
        self._lost += rows
        self._reason = str(error) or type(error).__name__
        self._count("dropped", rows)
        if file is not None:
            file.unlink(missing_ok=True)

    def _tell(self, is_last: bool) -> None:
        """Log, once a minute, how many answers the log lacks."""
        minute, missing = self._clock() // MINUTE, self._refused + self._lost
        if missing > self._told and (is_last or minute != self._last_minute):
            reason = self._reason or "they came faster than they were written"
            _log.warning("%d answers are not in the log of answers: %s", missing - self._told, reason)
            self._told, self._last_minute, self._reason = missing, minute, ""
