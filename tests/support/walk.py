"""The walk of a call through Turret's code: the functions that it enters, and the files it comes back to."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import CodeType, FrameType

from tests.support.places import ROOT

_LINKED = frozenset({"data", "tower", "training", "service"})
Stop = tuple[str, str]


@dataclass
class Walk:
    """The functions of Turret in the order of their first calls, as file and qualified name.

    Attributes:
        calls: all of them.
        functions: those that a reader looks up: without properties, methods with double underscores, and
            functions without a name.
    """

    calls: list[Stop] = field(default_factory=list)
    functions: list[Stop] = field(default_factory=list)

    def __str__(self) -> str:
        """The functions below their files, for a reader who wants fewer."""
        lines = [f"{self.size}"]
        for place, (file, name) in enumerate(self.functions):
            if not place or self.functions[place - 1][0] != file:
                lines.append(file)
            lines.append(f"    {name}")
        return "\n".join(lines)

    @property
    def files(self) -> set[str]:
        """The files of these functions."""
        return {file for file, _ in self.functions}

    @property
    def returns(self) -> int:
        """How often the walk comes back to a file that it has left."""
        files = [file for file, _ in self.functions]
        entered = sum(file != before for file, before in zip(files, [None, *files], strict=False))
        return entered - len(self.files)

    @property
    def size(self) -> tuple[int, int, int]:
        """The numbers of functions, files and returns."""
        return len(self.functions), len(self.files), self.returns


@contextmanager
def walked() -> Iterator[Walk]:
    """Note each function of Turret that is called, in this thread and in those that begin meanwhile."""
    walk, known = Walk(), set[CodeType]()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code not in known:
            known.add(code)
            file = Path(code.co_filename)
            if file.is_relative_to(ROOT / "turret"):
                _, *parts = file.relative_to(ROOT).parts
                prefix = [] if parts[0] in _LINKED else ["turret"]
                stop = "/".join([*prefix, *parts]), code.co_qualname
                walk.calls.append(stop)
                if _is_looked_up(frame):
                    walk.functions.append(stop)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _is_looked_up(frame: FrameType) -> bool:
    *owner, name = frame.f_code.co_qualname.split(".")
    if name.startswith(("<", "__")):
        return False
    found: object = frame.f_globals
    for part in [*owner, name]:
        members = found if isinstance(found, dict) else vars(found) if hasattr(found, "__dict__") else {}
        found = members.get(part)
    return not isinstance(found, property | cached_property)
