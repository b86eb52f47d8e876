"""Print the requirements of Turret with some extras, one a line: images install them before the code."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = [requirement for extra in sys.argv[1:] for requirement in project["optional-dependencies"][extra]]
print(*dict.fromkeys([*project["dependencies"], *extras]), sep="\n")
