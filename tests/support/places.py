"""Files of the repository that tests read, and the folder tests/fixtures."""

import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIXTURES = Path(__file__).parents[1] / "fixtures"


def python_blocks(page: Path) -> list[str]:
    """The fenced Python of a page."""
    return re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def check_snapshot(name: str, text: str) -> None:
    """Assert that `text` is the content of a file of snapshots, but for spaces at the ends of lines.

    `TURRET_TEST_SNAPSHOTS=write` writes the files anew; their difference is then part of the change.
    """
    path = FIXTURES / "snapshots" / name
    text = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    if os.environ.get("TURRET_TEST_SNAPSHOTS") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{name} shows something else"
