"""Output in terminals that can't show every character, as in containers and cron jobs."""

import codecs
import sys
import unicodedata
from io import TextIOWrapper

_HANDLER = "turret.terminal"


def write_readably() -> None:
    """Make standard output and error write replacements for characters that their encoding lacks.

    Lines of tables become `-`, `|` and `+`. Other characters, such as letters of ids, become escapes, so
    that ids stay distinct.
    """
    codecs.register_error(_HANDLER, _replaced)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a process may lack a stream, and a test may replace it
            stream.reconfigure(errors=_HANDLER)


def _replaced(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(map(_plain, error.object[error.start : error.end])), error.end


def _plain(character: str) -> str:
    name = unicodedata.name(character, "")
    if name.startswith("BOX DRAWINGS"):
        return {"HORIZONTAL": "-", "VERTICAL": "|"}.get(name.split()[-1], "+")
    return character.encode("ascii", "backslashreplace").decode()
