"""Progress of long commands: a bar on a terminal, else a line now and then; numbers with their nouns."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

# Each line is a record of this logger: the command line prints the records, other programs may. A process
# disables the logger, and has no bar either, if another process shows the same progress.
LOGGER = "turret.progress"
SECONDS_A_LINE = 10.0
# Fewer steps are stages of unequal length, so no remaining time is shown.
_EVEN_STEPS = 10


@contextmanager
def progress(description: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show the progress of the block on standard error; yields the function that advances it.

    A terminal shows a bar (a spinner without a `total`). Elsewhere the logger `turret.progress` gets a line
    with a step that ends ten seconds or more after the last line. A block without a `total` may have no
    steps, so it gets a line every ten seconds.
    """
    log, begun = logging.getLogger(LOGGER), time.monotonic()
    if sys.stderr is not None and sys.stderr.isatty() and not log.disabled:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(description, total=total)
            yield lambda steps: bar.advance(task, steps)
        return
    done, last_line = 0, begun

    def advance(steps: int) -> None:
        nonlocal done, last_line
        done += steps
        if (now := time.monotonic()) - last_line >= SECONDS_A_LINE:
            last_line = now
            log.info(_line(description, done, total, now - begun))

    if total is not None:
        yield advance
        return
    ended = Event()

    def tick() -> None:
        while not ended.wait(SECONDS_A_LINE):
            advance(0)

    clock = Thread(target=tick, daemon=True)
    clock.start()
    try:
        yield advance
    finally:
        ended.set()
        clock.join()


def print_lines() -> None:
    """Print the lines of `turret.progress` on standard error; a second call changes nothing."""
    log = logging.getLogger(LOGGER)
    if not any(isinstance(handler, _StandardError) for handler in log.handlers):
        log.addHandler(_StandardError())
        log.setLevel(logging.INFO)
        log.propagate = False


class _StandardError(logging.Handler):
    """Writes to the current standard error, which tests replace."""

    def emit(self, record: logging.LogRecord) -> None:
        # A process may be without standard error, and its reader may be gone.
        if sys.stderr is not None:
            with suppress(OSError, ValueError):
                print(record.getMessage(), file=sys.stderr, flush=True)


def _line(description: str, done: int, total: int | None, seconds: float) -> str:
    """Return a line such as "epoch 1/20: 300 of 1,200 (25 %), 20 s, about 60 s left"."""
    if not total:
        return f"{description}: {f'{done:,}, ' if done else ''}{seconds:.0f} s"
    left = ""
    if 0 < done < total and total >= _EVEN_STEPS:
        left = f", about {seconds * (total - done) / done:.0f} s left"
    return f"{description}: {done:,} of {total:,} ({100 * done / total:.0f} %), {seconds:.0f} s{left}"


def counted(number: int, noun: str) -> str:
    """Return `number` with thousands separators, and `noun`, with an s if plural: 1 epoch, 2,000 rows."""
    return f"{number:,} {noun}{'s' * (number != 1)}"
