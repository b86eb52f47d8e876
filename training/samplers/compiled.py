"""Functions compiled by numba: how, and what they share.

Compiled code is kept next to its module (or in the user's cache folder where that can't be written), so
that only the first process waits for it. numba compares a module with its own code alone: after changing a
function that another module calls, remove `__pycache__/*.nb*`.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import NDArray

get_item_pointer: Callable[..., Any] = cgutils.get_item_pointer
P = ParamSpec("P")
R = TypeVar("R")

# Sums in another order can use vector registers; NaN and infinity keep their meaning.
REORDERED = {"reassoc", "contract", "nsz", "arcp"}


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function`; it runs without the interpreter's lock, so that threads can share the work."""
    return cast(Callable[P, R], numba.njit(nogil=True, cache=True)(function))


def compiled_sum(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function`, whose sums may be reordered."""
    return cast(Callable[P, R], numba.njit(nogil=True, cache=True, fastmath=REORDERED)(function))


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
