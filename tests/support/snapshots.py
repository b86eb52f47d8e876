"""What people and programs are shown, kept in tests/fixtures/snapshots/ and reviewed where it changes.

`TURRET_TEST_SNAPSHOTS=write` writes the files anew; their difference is then part of the change.
"""

import os
from pathlib import Path

SNAPSHOTS = Path(__file__).parents[1] / "fixtures" / "snapshots"


def check_snapshot(name: str, text: str) -> None:
    """Assert that `text` is the content of the file, but for spaces at the ends of lines."""
    path = SNAPSHOTS / name
    text = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    if os.environ.get("TURRET_TEST_SNAPSHOTS") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{name} shows something else"
