"""Checks that the files of a bundle are the published ones, fit each other and hold usable numbers."""

import hashlib
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from turret.data.files import map_ordered
from turret.tower.errors import BundleError
from turret.tower.format.manifest import Manifest
from turret.tower.format.safe_open import open_regular, size_of

# Float32 rounding of a norm over some thousand columns is smaller; unnormalised vectors are further off.
_UNIT_TOLERANCE = 1e-3


def check_files(folder: Path, manifest: Manifest) -> None:
    """Compare the size and the SHA-256 of each file with the manifest's, several files at once.

    Raises BundleError naming the first file that is missing, is no regular file or differs, or when the
    manifest lacks a required file.
    """
    missing = manifest.required_files - set(manifest.files)
    if missing:
        raise BundleError(f"the manifest of {folder} lists no {sorted(missing)}; export the bundle again")
    for name, expected in manifest.files.items():
        if (size := size_of(folder / name)) != expected.bytes:
            raise _changed(folder / name, f"{size} bytes where {expected.bytes} were")
    paths = [folder / name for name in manifest.files]
    for path, digest in zip(paths, map_ordered(_digest, paths), strict=True):
        if (wanted := manifest.files[path.name].sha256) != digest:
            raise _changed(path, f"SHA-256 {digest[:12]}... where {wanted[:12]}... was")


FileStamps = frozenset[tuple[str, int, int, int, int]]


def file_stamps(folder: Path) -> FileStamps:
    """The name, inode, size, and times of change (of content and of inode, ns) of each file of a folder.

    No file has changed between two calls with the same result. Raises BundleError when the folder can't be
    read.
    """
    try:
        with os.scandir(folder) as entries:
            stats = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    except OSError as error:
        raise BundleError(f"{folder} can't be read: {error.strerror}") from None
    return frozenset((name, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, s in stats)


def _changed(path: Path, how: str) -> BundleError:
    return BundleError(f"{path} is not the file that was published: {how}; copy the bundle again", "checksum")


def _digest(path: Path) -> str:
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_parts(
    manifest: Manifest,
    vectors: NDArray[np.float32],
    popularity: NDArray[np.int64],
    item_weights: NDArray[np.float64] | NDArray[np.int64],
    usual_gaps: NDArray[np.float32],
    vocabulary_length: int,
) -> None:
    """Raise BundleError naming the first part whose content doesn't fit the rest.

    Item vectors [N, D] are finite, not all zero, and of length 1 where the scoring is cosine. Shapes are
    compared where files are mapped.
    """
    if vocabulary_length != manifest.item_count:
        raise BundleError(
            f"vocabulary.json has {vocabulary_length} ids where the manifest says {manifest.item_count} "
            "items; the files are of different models"
        )
    if (popularity < 0).any():
        raise BundleError("popularity.npy holds a negative count; export the bundle again")
    if not (np.isfinite(item_weights).all() and (item_weights >= 0).all()):
        raise BundleError("item_weights.npy holds a weight that is none; export the bundle again")
    if not (np.isfinite(usual_gaps).all() and (usual_gaps >= 0).all()):
        raise BundleError("usual_gaps.npy holds a time that is none; export the bundle again")
    lengths = lengths_of(vectors)
    if not (np.isfinite(lengths).all() and lengths.any()):
        row = int(np.argmin(np.isfinite(lengths)))
        fault = "holds nothing but zeros" if np.isfinite(lengths[row]) else f"is not finite in row {row}"
        raise BundleError(f"item_vectors.npy {fault}; the training went wrong, train again")
    if manifest.scoring.kind == "cosine":
        scoring = manifest.scoring
        off = np.abs(lengths_of(vectors[:, scoring.pairs : -1 if scoring.item_bias else None]) - 1)
        if off.max() > _UNIT_TOLERANCE:
            row = int(np.argmax(off))
            raise BundleError(
                f"the scoring is cosine, but the length of the item vector in row {row} is {off[row]:.4g} "
                "away from 1; the training went wrong, train again"
            )


def lengths_of(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """The lengths [N] of vectors [N, D], without a second array of their size."""
    with np.errstate(over="ignore", invalid="ignore"):
        lengths: NDArray[np.float32] = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
    return lengths
