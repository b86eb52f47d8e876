"""A planted fault: a function of the product and its replacement."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

Function = Callable[..., Any]
FAULTS: dict[str, "Fault"] = {}


@dataclass(frozen=True)
class Fault:
    """`make(original)` replaces `path`, as `Keyring.load`, of a module; then one of `tests` has to fail."""

    name: str
    module: str
    path: str
    tests: tuple[str, ...]
    make: Callable[[Any], Any]

    def plant(self, module: ModuleType) -> None:
        """Replace the function in its module, before another module imports it."""
        *classes, name = self.path.split(".")
        owner: Any = module
        for one in classes:
            owner = getattr(owner, one)
        found = inspect.getattr_static(owner, name)
        if isinstance(found, property):
            setattr(owner, name, property(self.make(found.fget)))
        elif isinstance(found, (classmethod, staticmethod)):
            setattr(owner, name, type(found)(self.make(found.__func__)))
        else:
            setattr(owner, name, self.make(found))


def planted(target: str, *tests: str) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Register a fault of `target`, such as `turret.service.keys.keys:Keyring.find`.

    The decorated function, whose name is a sentence, gets the original and returns the faulty one. `tests`
    are files or folders below tests/.
    """
    module, _, path = target.partition(":")

    def register(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        name = make.__name__.replace("_", " ")
        if name in FAULTS:
            raise ValueError(f"two faults are named {name!r}")
        FAULTS[name] = Fault(name, module, path, tests, make)
        return make

    return register


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
