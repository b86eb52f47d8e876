"""Functions compiled by numba, cached beside the sources, and their threads."""

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
import torch
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


def sources(packages: Path) -> str:
    """A hash of all modules of towers and training that hold compiled functions, in the folder `packages`."""
    digest = hashlib.sha256()
    for path in sorted([*packages.glob("tower/**/*.py"), *packages.glob("training/**/*.py")]):
        source = path.read_bytes()
        if b"@compiled" in source:
            digest.update(source)
    return digest.hexdigest()[:16]


# The folder of compiled code, which lets only the first process compile. numba checks only a function's own
# module for changes, although callees are compiled into it; so each state of the sources has its own folder.
_BESIDE = Path(numba_config.CACHE_DIR or Path(__file__).parent / "__pycache__")
FOLDER = str(_BESIDE / f"compiled-{sources(Path(__file__).parents[2])}")


def _compile(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    usual = numba_config.CACHE_DIR
    numba_config.CACHE_DIR = FOLDER
    try:
        return cast(Callable[P, R], numba.njit(nogil=True, cache=True, **options)(function))
    except RuntimeError:
        # Neither that folder nor the user's own is writable: every process compiles for itself.
        return cast(Callable[P, R], numba.njit(nogil=True, **options)(function))
    finally:
        numba_config.CACHE_DIR = usual


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function`; it runs without the interpreter's lock."""
    return _compile(function)


def compiled_inline(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` into its callers: a call copies every array's fields and counts references."""
    return _compile(function, forceinline=True)


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


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="turret-sampler")


def in_parts(count: int, work: Callable[[int, int], object], least: int = 1) -> None:
    """Call `work(start, stop)` on parts of range(`count`), none much smaller than `least`.

    The result of `work` must not depend on the parts. Each thread gets a few parts, as some take longer. The
    caller's thread works too: waking another costs a tenth of a millisecond, so `least` should take longer.
    """
    threads = torch.get_num_threads()
    parts = min(4 * threads, count // least)
    if threads == 1 or parts < 2:
        if count:
            work(0, count)
        return
    left = iter(list(pairwise(count * part // parts for part in range(parts + 1))))
    others = [_pool(threads).submit(_take, left, work) for _ in range(min(threads, parts) - 1)]
    try:
        _take(left, work)
    finally:
        # A task that has not begun by now has nothing left to do.
        wait([other for other in others if not other.cancel()])
    for other in others:
        if not other.cancelled():
            other.result()


def _take(left: Iterator[tuple[int, int]], work: Callable[[int, int], object]) -> None:
    for start, stop in left:
        work(start, stop)
