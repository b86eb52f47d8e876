"""Memory-mapped arrays: one in a `.npy` file, or several in a file whose header is beside it."""

import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from turret.tower.config import Settings
from turret.tower.errors import BundleError
from turret.tower.format.safe_open import open_regular, size_of


def map_array(path: Path, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Map the `.npy` file `path`, read-only.

    Raises BundleError when it is missing, is not an array, or has another type, shape or length.
    """
    size = size_of(path)
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy parses the header as a Python literal, with any error for other bytes
        raise BundleError(f"{path} is not a whole .npy array ({error}); export the bundle again") from None
    fits = isinstance(array, np.memmap) and array.flags.c_contiguous and array.dtype == np.dtype(dtype)
    if not fits or array.shape != shape:
        raise BundleError(
            f"{path.name} has shape {array.shape} of {array.dtype} where the manifest says {shape} of "
            f"{dtype}; the files are of different models"
        )
    if size != array.offset + array.nbytes:
        raise BundleError(f"{path} is longer than its array; copy the bundle again", "checksum")
    return np.asarray(array)


# Sections begin at cache lines, so that every number is aligned.
ALIGNMENT = 64
_Size = Annotated[int, Field(ge=0, le=2**48)]


class Section(Settings):
    """A one-dimensional array: the offset of its first byte and its length in numbers."""

    dtype: Literal["uint8", "int32", "int64", "float64"]
    offset: _Size
    length: _Size

    @property
    def end(self) -> int:
        """The offset behind the last byte of the section."""
        return self.offset + self.length * np.dtype(self.dtype).itemsize


class Sections:
    """The arrays in `buffer`, read-only and without a copy.

    Raises BundleError, naming `source`, when one of `sections` lies outside the buffer or is not aligned.
    """

    def __init__(self, sections: Mapping[str, Section], buffer: bytes | mmap.mmap, source: str) -> None:
        for name, section in sections.items():
            if section.offset % ALIGNMENT or section.end > len(buffer):
                raise BundleError(
                    f"{source}: section {name!r} lies outside its {len(buffer)} bytes; copy the bundle again"
                )
        self.buffer = buffer
        self._sections = sections
        self._source = source

    def array(self, name: str, dtype: str, length: int | None = None) -> NDArray[Any]:
        """The array of a section. Raises BundleError when it is missing or has another type or length."""
        section = self._sections.get(name)
        if section is None or section.dtype != dtype or length not in (None, section.length):
            raise BundleError(
                f"{self._source}: there is no section {name!r} of {length or 'any number of'} {dtype}; "
                "export the bundle again"
            )
        return np.frombuffer(self.buffer, dtype=dtype, count=section.length, offset=section.offset)

    def starts(self, name: str, end: int, length: int | None = None) -> NDArray[np.int64]:
        """The bounds of slices one after the other, int64: they rise from 0 to `end` and never fall.

        Raises BundleError for other bounds.
        """
        bounds: NDArray[np.int64] = self.array(name, "int64", length)
        ends = tuple(bounds[[0, -1]].tolist()) if len(bounds) else None
        if ends != (0, end) or (bounds[1:] < bounds[:-1]).any():
            raise self.fault(name, f"does not rise from 0 to {end}")
        return bounds

    def fault(self, name: str, words: str) -> BundleError:
        """The error of a section that doesn't fit the others."""
        return BundleError(f"{self._source}: section {name!r} {words}; export the bundle again")


def pack(arrays: Mapping[str, NDArray[Any]]) -> tuple[dict[str, Section], bytes]:
    """Concatenate one-dimensional arrays in their order; the first begins at byte 0."""
    sections: dict[str, Section] = {}
    packed = bytearray()
    for name, values in arrays.items():
        packed += bytes(-len(packed) % ALIGNMENT)
        sections[name] = Section.model_validate(
            {"dtype": values.dtype.name, "offset": len(packed), "length": len(values)}
        )
        packed += values.tobytes()
    return sections, bytes(packed)


def map_file(path: Path) -> mmap.mmap:
    """Map a whole file, read-only. Raises BundleError when it is empty or can't be read."""
    with open_regular(path) as stream:
        try:
            return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise BundleError(f"{path} can't be mapped ({error}); copy the bundle again", "unknown") from None
