"""Functions compiled by numba: how, where the compiled code is kept, and what they share."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import NDArray

numba_config: Any = numba.config
get_item_pointer: Callable[..., Any] = cgutils.get_item_pointer
P = ParamSpec("P")
R = TypeVar("R")

# Sums in another order can use vector registers; NaN and infinity keep their meaning.
REORDERED = {"reassoc", "contract", "nsz", "arcp"}


def _sources() -> str:
    """A hash of all modules of this folder that hold compiled functions."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        source = path.read_bytes()
        if b"@compiled" in source:
            digest.update(source)
    return digest.hexdigest()[:16]


def _kept(usual: str) -> str:
    """The folder for compiled code.

    Only the first process then waits for it. numba would ask for a function's own module alone whether it has
    changed, though the code of what it calls is compiled into it; so each state of the modules has a folder.
    """
    return str((Path(usual) if usual else Path(__file__).parent / "__pycache__") / f"compiled-{_sources()}")


FOLDER = _kept(numba_config.CACHE_DIR)


def _compile(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    usual = numba_config.CACHE_DIR
    numba_config.CACHE_DIR = FOLDER
    try:
        return cast(Callable[P, R], numba.njit(nogil=True, cache=True, **options)(function))
    except RuntimeError:
        # Neither that folder nor the user's own can be written: every process compiles for itself.
        return cast(Callable[P, R], numba.njit(nogil=True, **options)(function))
    finally:
        numba_config.CACHE_DIR = usual


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function`; it runs without the interpreter's lock, so that threads can share the work."""
    return _compile(function)


def compiled_sum(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function`, whose sums may be reordered."""
    return _compile(function, fastmath=REORDERED)


def _prefetch(typing_context: Any, array: Any, row: Any, byte: Any) -> Any:
    """Ask for the cache line `byte` bytes into `array[row]`, which then comes while other work is done."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointed = context.make_array(array)(context, builder, arguments[0])
        place = [arguments[1]] + [ir.Constant(ir.IntType(64), 0)] * (array.ndim - 1)
        first = builder.bitcast(
            get_item_pointer(context, builder, array, pointed, place), ir.IntType(8).as_pointer()
        )
        address = builder.gep(first, [arguments[2]])
        number = ir.IntType(32)
        form = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [address.type], form)
        builder.call(function, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), generate


prefetch = cast(Callable[[NDArray[Any], int, int], None], intrinsic(_prefetch))
