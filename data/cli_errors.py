"""Errors of commands as one sentence on standard error, without a traceback."""

import errno
import signal
import sys
from types import FrameType
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from turret.data.errors import TurretError
from turret.data.extras import install_hint


class ErrorHandlingGroup(TyperGroup):
    """A command group that prints errors as sentences, and exits on Ctrl-C without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand."""
        stopped = False

        def stop(number: int, frame: FrameType | None) -> NoReturn:
            nonlocal stopped
            stopped = True
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGINT, stop)
        try:
            return super().invoke(ctx)
        except TurretError as error:
            _end(str(error), error.exit_status)
        except KeyboardInterrupt:
            _end("stopped", 130)
        except Exception as error:
            if stopped:  # torch turns an interrupt during its import into other errors
                _end("stopped", 130)
            if isinstance(error, OSError) and error.filename and error.errno != errno.EPIPE:
                _end(f"{error.filename}: {error.strerror}; check the path, its permissions and the space", 1)
            if isinstance(error, ModuleNotFoundError) and (hint := install_hint(error)):
                _end(hint, 1)
            raise
        finally:
            signal.signal(signal.SIGINT, before)


def _end(sentence: str, status: int) -> NoReturn:
    print(f"turret: {sentence}", file=sys.stderr)
    raise typer.Exit(status) from None
