"""Damage at random places of the files of a bundle: none is opened, and nothing ends the process."""

import random
import shutil
from pathlib import Path

import pytest

from tests.support.bundle_damage import replace, rewrite
from turret.tower.bundle.golden import load
from turret.tower.errors import BundleError
from turret.tower.format.manifest import DIGEST, MANIFEST


@pytest.fixture
def copy(bundles: Path) -> Path:
    """The version `v1`, of which `whole` is a copy."""
    shutil.copytree(bundles / "v1", bundles / "whole")
    return bundles / "v1"


def mangled(content: bytes, generator: random.Random) -> bytes:
    """Flip a bit, cut the end off, insert bytes, or write zeros over some."""
    at = generator.randrange(len(content))
    flipped = content[:at] + bytes([content[at] ^ 1 << generator.randrange(8)]) + content[at + 1 :]
    zeros = bytes(generator.randint(1, 4096))
    filled = (content[:at] + zeros + content[at + len(zeros) :])[: len(content)]
    inserted = content[:at] + generator.randbytes(generator.randint(1, 100)) + content[at:]
    found = generator.choice([flipped, content[:at], inserted, filled])
    return flipped if found == content else found


def damaged(folder: Path, generator: random.Random) -> tuple[Path, bytes]:
    """A file of a whole version, and what to put into its place."""
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name("whole"), folder)
    path = generator.choice(sorted(folder.iterdir()))
    return path, mangled(path.read_bytes(), generator)


@pytest.mark.fault(2)
def test_a_damaged_bundle_is_refused(copy: Path, thorough: bool) -> None:
    generator = random.Random(5)
    for _ in range(1_000 if thorough else 30):
        replace(*damaged(copy, generator))
        with pytest.raises(BundleError):
            load(copy.parent, "v1")


@pytest.mark.fault(3)
def test_what_no_checksum_sees_ends_no_process_either(copy: Path, thorough: bool) -> None:
    """Files damaged before they were published, so to speak: the parsers meet them, crafted headers too."""
    generator = random.Random(6)
    rounds = 300 if thorough else 40
    refused = 0
    for _ in range(rounds):
        path, content = damaged(copy, generator)
        if path.name not in (MANIFEST, DIGEST):
            rewrite(copy, path.name, content)
        try:
            load(copy.parent, "v1")
        except BundleError:
            refused += 1
    assert refused > rounds / 2


DEEP_AND_HUGE = {
    "deep": b"[" * 5_000_000,
    "deep objects": b'{"a":' * 1_000_000,
    "long": b'"' + b"x" * 30_000_000 + b'"',
    "many": b"[" + b"0," * 500_000 + b"0]",
}


@pytest.mark.parametrize("content", DEEP_AND_HUGE.values(), ids=DEEP_AND_HUGE)
@pytest.mark.parametrize("name", ["vocabulary.json", "golden.json", MANIFEST])
@pytest.mark.fault(3)
def test_deep_and_huge_documents_are_refused(bundles: Path, name: str, content: bytes) -> None:
    if name == MANIFEST:
        replace(bundles / "v1" / MANIFEST, content)
    else:
        rewrite(bundles / "v1", name, content)
    with pytest.raises(BundleError):
        load(bundles, "v1")
