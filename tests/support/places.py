"""Folders of the repository that tests read."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIXTURES = Path(__file__).parents[1] / "fixtures"


def python_blocks(page: Path) -> list[str]:
    """The fenced Python of a page."""
    return re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
