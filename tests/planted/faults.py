"""All faults, from the module of each area, whose name begins with `of_`."""

from importlib import import_module
from pathlib import Path

from tests.planted.fault import FAULTS

__all__ = ["FAULTS"]

for path in sorted(Path(__file__).parent.glob("of_*.py")):
    import_module(f"tests.planted.{path.stem}")
