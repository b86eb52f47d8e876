"""A planted fault: a function of the product and its replacement."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

Function = Callable[..., Any]
_FAULTS: dict[str, "Fault"] = {}


@dataclass(frozen=True)
class Fault:
    """`faulty(original, ...)` replaces `path`, as `Keyring.load`, of a module; then one of `tests` fails."""

    name: str
    module: str
    path: str
    tests: tuple[str, ...]
    faulty: Function

    def plant(self, module: ModuleType) -> None:
        """Replace the function in its module, before another module imports it."""
        *classes, name = self.path.split(".")
        owner: Any = module
        for one in classes:
            owner = getattr(owner, one)
        found = inspect.getattr_static(owner, name)
        if isinstance(found, property):
            setattr(owner, name, property(self._in_place_of(found.fget)))
        elif isinstance(found, (classmethod, staticmethod)):
            setattr(owner, name, type(found)(self._in_place_of(found.__func__)))
        else:
            setattr(owner, name, self._in_place_of(found))

    def _in_place_of(self, original: Any) -> Function:
        @wraps(original)
        def replacement(*given: Any, **named: Any) -> Any:
            return self.faulty(original, *given, **named)

        return replacement


def planted(target: str, *tests: str) -> Callable[[Function], Function]:
    """Register a fault of `target`, such as `service.keys.keys:Keyring.find` of the package `turret`.

    The decorated function, whose name is a sentence, is called in its place, with the original before the
    arguments. `tests` are files or folders below tests/.
    """
    module, _, path = target.partition(":")

    def register(faulty: Function) -> Function:
        name = faulty.__name__.replace("_", " ")
        if name in _FAULTS:
            raise ValueError(f"two faults are named {name!r}")
        _FAULTS[name] = Fault(name, f"turret.{module}", path, tests, faulty)
        return faulty

    return register


def all_faults() -> dict[str, Fault]:
    """Every fault by its name, from the modules of this folder whose names begin with `of_`."""
    for path in sorted(Path(__file__).parent.glob("of_*.py")):
        import_module(f"tests.planted.{path.stem}")
    return _FAULTS


class _Names(dict[str, object]):
    """Some names before those of a module, whose later changes count."""

    def __init__(self, names: dict[str, object], module: dict[str, object]) -> None:
        super().__init__(names)
        self._module = module

    def __missing__(self, name: str) -> object:
        return self._module[name]


def seeing(function: Any, **names: object) -> Function:
    """Return a copy of `function` in which these names of its module mean something else."""
    seen = _Names(names, function.__globals__)
    other = FunctionType(
        function.__code__, seen, function.__name__, function.__defaults__, function.__closure__
    )
    other.__kwdefaults__ = function.__kwdefaults__
    return other
