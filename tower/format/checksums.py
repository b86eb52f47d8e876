"""Checks that the files of a bundle are the published ones, fit each other and hold usable numbers."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.data.files import map_ordered
from turret.tower.errors import BundleError
from turret.tower.format.manifest import Manifest
from turret.tower.format.safe_open import open_regular, size_of

# Float32 rounding of a norm over some thousand columns; a vector that was never normalised is further off.
_UNIT_TOLERANCE = 1e-3


def check_parts(
    manifest: Manifest,
    vectors: NDArray[np.float32],
    popularity: NDArray[np.int64],
    vocabulary_length: int,
) -> None:
    """Raise BundleError naming the first part whose content doesn't fit the rest.

    Shapes are compared where files are mapped.
    """
    if vocabulary_length != manifest.item_count:
        raise BundleError(
            f"vocabulary.json has {vocabulary_length} ids where the manifest says {manifest.item_count} "
            "items; the files are of different models",
            "parts",
        )
    check_vectors(manifest, vectors)
    if (popularity < 0).any():
        raise BundleError("popularity.npy holds a negative count; export the bundle again", "parts")


def check_vectors(manifest: Manifest, vectors: NDArray[np.float32]) -> None:
    """Raise BundleError unless the item vectors [N, D] are usable.

    They are finite, not all zero, and of length 1 where the scoring is cosine.
    """
    norms = lengths_of(vectors)
    if not np.isfinite(norms).all():
        row = int(np.argmin(np.isfinite(norms)))
        raise BundleError(
            f"item_vectors.npy is not finite in row {row}; the training went wrong, train again", "vectors"
        )
    if not norms.any():
        raise BundleError(
            "item_vectors.npy holds nothing but zeros; the training went wrong, train again", "vectors"
        )
    if manifest.scoring.kind == "cosine":
        _check_lengths(lengths_of(vectors[:, :-1]) if manifest.scoring.item_bias else norms)


def lengths_of(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """The lengths [N] of vectors [N, D], without a second array of their size."""
    with np.errstate(over="ignore", invalid="ignore"):
        lengths: NDArray[np.float32] = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
    return lengths


def _check_lengths(lengths: NDArray[np.floating[Any]]) -> None:
    if (np.abs(lengths - 1) > _UNIT_TOLERANCE).any():
        row = int(np.argmax(np.abs(lengths - 1)))
        raise BundleError(
            f"the scoring is cosine, but the item vector in row {row} has length {lengths[row]:.4g} instead "
            "of 1",
            "vectors",
        )


def check_sizes(folder: Path, manifest: Manifest) -> None:
    """Compare the sizes of the files that the manifest lists.

    Raises BundleError when one is missing, is no regular file or has another size, or when the manifest lacks
    a required file.
    """
    missing = manifest.required_files - set(manifest.files)
    if missing:
        raise BundleError(
            f"the manifest of {folder} lists no {sorted(missing)}; export the bundle again", "format"
        )
    for name, expected in manifest.files.items():
        size = size_of(folder / name)
        if size != expected.bytes:
            raise BundleError(
                f"{folder / name} is not the file that was published: {size} bytes where "
                f"{expected.bytes} were; copy the bundle again",
                "checksum",
            )


def check_files(folder: Path, manifest: Manifest) -> None:
    """Compare every file with its size and SHA-256, several at once.

    Raises BundleError naming the first that differs, and as `check_sizes`.
    """
    check_sizes(folder, manifest)
    paths = [folder / name for name in manifest.files]
    for path, digest in zip(paths, map_ordered(_digest, paths), strict=True):
        expected = manifest.files[path.name].sha256
        if digest != expected:
            raise BundleError(
                f"{path} is not the file that was published: SHA-256 {digest[:12]}... where "
                f"{expected[:12]}... was; copy the bundle again",
                "checksum",
            )


def _digest(path: Path) -> str:
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
