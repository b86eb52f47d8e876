"""Checks of the arguments of the Python API: a bad argument raises an error in words, as bad data does."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, wraps
from inspect import signature
from numbers import Real
from operator import index
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turret.data.errors import DataError, TurretError, is_path, shown, system_errors_told
from turret.data.object_stores import is_url

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _is_list(value: Any) -> bool:
    return np.iterable(value) and not isinstance(value, str | bytes | Mapping)


def _is_whole(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool) and np.ndim(value) == 0


def _is_number(value: Any) -> bool:
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and isinstance(float(value), float)
    except OverflowError:
        return False


# Arguments of parameters of these types are checked: the type's name in messages, and the check.
_TYPES: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    bool: ("true or false", lambda value: isinstance(value, bool | np.bool_)),
    int: ("a whole number", _is_whole),
    float: ("a number", _is_number),
    str: ("a text", lambda value: isinstance(value, str)),
    PathLike: ("a path", is_path),
    Mapping: (
        "a dictionary whose keys are texts",
        lambda value: isinstance(value, Mapping) and all(isinstance(key, str) for key in value),
    ),
    Sequence: ("a list", lambda value: _is_list(value) and hasattr(value, "__len__")),
    Iterable: ("a list", _is_list),
    Callable: ("a function", callable),
    NoneType: ("None", lambda value: value is None),
}


def checked(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """Check the arguments of a public call by the types of its parameters, and raise TurretError.

    Errors of the operating system during the call and arguments that are nested too deeply raise it, too. The
    call itself checks a parameter whose type is neither a class nor one of `_TYPES`, such as a table. Whole
    numbers of NumPy become Python integers, which other libraries take.
    """
    parameters, kinds = signature(call), cache(lambda: _checkable(call))

    @wraps(call)
    def checking(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        bound = parameters.bind(*args, **kwargs)
        for name in bound.arguments.keys() & kinds().keys():
            value, wanted = bound.arguments[name], kinds()[name]
            if not any(_fits(value, kind) for kind in wanted):
                words = " or ".join(dict.fromkeys(map(_words, wanted)))
                raise TurretError(f"{name} can't be {shown(value)}: give {words}")
            if int in wanted and _is_whole(value):
                bound.arguments[name] = index(value)
            elif Sequence[int] in wanted and _is_list(value):
                bound.arguments[name] = [index(number) for number in value]
        with system_errors_told():
            try:
                return call(*bound.args, **bound.kwargs)
            except RecursionError:
                raise TurretError(
                    "an argument is nested too deeply; give lists and mappings of values"
                ) from None

    return checking


def _checkable(call: Callable[..., Any]) -> dict[str, tuple[Any, ...]]:
    """The types of each checked parameter; an argument has to have one of them."""
    hints = get_type_hints(call).items()
    kinds = {
        name: get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,) for name, hint in hints
    }
    for name, alternatives in kinds.items():
        if any(get_origin(kind) is PathLike for kind in alternatives):  # a text has to be a path
            kinds[name] = tuple(kind for kind in alternatives if kind is not str)
    return {
        name: alternatives
        for name, alternatives in kinds.items()
        if all((get_origin(kind) or kind) in {Literal, *_TYPES} or _is_class(kind) for kind in alternatives)
    }


def _is_class(kind: Any) -> bool:
    """Whether `kind` is a class to check by isinstance; protocols are checked where they are used."""
    return isinstance(kind, type) and not getattr(kind, "_is_protocol", False)


def _fits(value: Any, kind: Any) -> bool:
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin not in _TYPES:
        return isinstance(value, origin)
    is_of_values = origin is Sequence and inner[0] in _TYPES
    return _TYPES[origin][1](value) and (not is_of_values or all(_fits(entry, inner[0]) for entry in value))


def _words(kind: Any) -> str:
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin not in _TYPES:
        return f"one of the class {origin.__name__}"
    words = _TYPES[origin][0]
    return f"{words} of {_TYPES[inner[0]][0][2:]}s" if origin is Sequence and inner[0] in _TYPES else words


def local_folder(name: str, folder: str | PathLike[str], reason: str, hint: str = "") -> Path:
    """The argument `name` as a local path. Raises DataError for an address of an object store."""
    if isinstance(folder, str) and is_url(folder):
        raise DataError(f"{name} = {folder!r} is in an object store, and {reason}; give one{hint}")
    return Path(folder)


def as_vectors(name: str, values: ArrayLike) -> NDArray[np.float32]:
    """Return vectors as contiguous float32 [R, D]; one vector [D] is [1, D].

    Raises TurretError for other shapes, values that are no numbers, and numbers that are not finite in
    float32.
    """
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biufO":
            raise TypeError(f"it holds {array.dtype}")
        with np.errstate(over="ignore"):
            vectors = np.ascontiguousarray(array, dtype=np.float32)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:  # torch raises a RuntimeError
        raise TurretError(
            f"{name} has to hold numbers, in vectors of one length: [rows, D] ({error})"
        ) from None
    vectors = vectors.reshape(1, -1) if vectors.ndim == 1 else vectors
    if vectors.ndim != 2:
        raise TurretError(f"{name} has the shape {vectors.shape}; give [rows, D]")
    if not np.isfinite(vectors).all():
        raise TurretError(f"{name} needs vectors that are finite in float32")
    return vectors


def as_mask(name: str, values: ArrayLike, count: int) -> NDArray[np.bool_]:
    """Return a mask of `count` rows as an array. Raises TurretError for other values and another length."""
    try:
        mask = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TurretError(f"{name} has to hold true or false for each of {count} rows ({error})") from None
    if mask.shape != (count,) or mask.dtype != np.bool_:
        raise TurretError(f"{name} has the shape {mask.shape} of {mask.dtype}; give [{count}] of bool")
    return mask
