"""A plugin of pytest that puts a fault into its process: `TURRET_FAULT=NAME pytest -p tests.planted.plugin`.

The module of the fault is changed right after its code has run: whoever imports from it gets the fault.
"""

import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from tests.planted.fault import Fault, all_faults

VARIABLE = "TURRET_FAULT"


class _Planter(MetaPathFinder, Loader):
    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._fault.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None, f"there is no module {fullname}"
        assert spec.loader is not None
        self._loader, spec.loader = spec.loader, self
        return spec

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._fault.plant(module)


if VARIABLE in os.environ:
    _fault = all_faults()[os.environ[VARIABLE]]
    assert "turret" not in sys.modules, "something imports the product before its fault"
    sys.meta_path.insert(0, _Planter(_fault))
