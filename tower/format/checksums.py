"""Checks that the files of a bundle are byte by byte the published ones."""

import hashlib
from pathlib import Path

from turret.data.files import map_ordered
from turret.data.manifest import FileHash
from turret.tower.errors import BundleError
from turret.tower.format.manifest import Manifest
from turret.tower.format.safe_open import Identity, identity, identity_of, open_regular, read_regular


def check_sizes(folder: Path, manifest: Manifest) -> dict[str, Identity]:
    """Compare the sizes of the files that the manifest lists, and return their identities.

    Raises BundleError when one is missing, is no regular file or has another size, or when the manifest lacks
    a required file.
    """
    missing = manifest.required_files - set(manifest.files)
    if missing:
        raise BundleError(
            f"the manifest of {folder} lists no {sorted(missing)}; export the bundle again", "format"
        )
    identities = {name: identity(folder / name) for name in manifest.files}
    for name, expected in manifest.files.items():
        if identities[name].size != expected.bytes:
            raise BundleError(
                f"{folder / name} is not the file that was published: {identities[name].size} bytes where "
                f"{expected.bytes} were; copy the bundle again",
                "checksum",
            )
    return identities


def check_files(folder: Path, manifest: Manifest) -> None:
    """Compare every file with its size and SHA-256, several at once.

    Raises BundleError naming the first that differs, and as `check_sizes`.
    """
    identities = check_sizes(folder, manifest)
    names = list(manifest.files)
    for name, (read, digest) in zip(
        names, map_ordered(_digest, [folder / name for name in names]), strict=True
    ):
        _check(folder / name, manifest.files[name], digest)
        if read != identities[name]:
            raise BundleError(
                f"{folder / name} was written to while it was read; wait until it is complete", "checksum"
            )


def read_listed(folder: Path, manifest: Manifest, name: str, limit: int) -> bytes:
    """Read a file of at most `limit` bytes and compare it with its checksum.

    Raises BundleError when it differs, and as `tower.format.safe_open.read_regular`. While a bundle is
    written, its manifest lists no files, and nothing is compared.
    """
    content = read_regular(folder / name, limit)
    listed = manifest.files.get(name)
    if listed is not None:
        _check(folder / name, listed, hashlib.sha256(content).hexdigest())
    return content


def _digest(path: Path) -> tuple[Identity, str]:
    with open_regular(path) as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return identity_of(stream), digest


def _check(path: Path, expected: FileHash, digest: str) -> None:
    if digest != expected.sha256:
        raise BundleError(
            f"{path} is not the file that was published: SHA-256 {digest[:12]}... where "
            f"{expected.sha256[:12]}... was; copy the bundle again",
            "checksum",
        )
