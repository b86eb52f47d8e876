"""Damage at random places of the files of a bundle: none is opened, and nothing ends the process."""

import random
import shutil
from pathlib import Path

import pytest

from tests.support.bundle_damage import replace, rewrite
from turret.tower.bundle.golden import load
from turret.tower.errors import BundleError
from turret.tower.format.manifest import DIGEST, MANIFEST


def mangled(content: bytes, generator: random.Random) -> bytes:
    """Flip a bit, cut the end off, insert bytes, or write zeros over some."""
    at = generator.randrange(len(content))
    flipped = content[:at] + bytes([content[at] ^ 1 << generator.randrange(8)]) + content[at + 1 :]
    zeros = bytes(generator.randint(1, 4096))
    filled = (content[:at] + zeros + content[at + len(zeros) :])[: len(content)]
    inserted = content[:at] + generator.randbytes(generator.randint(1, 100)) + content[at:]
    found = generator.choice([flipped, content[:at], inserted, filled])
    return flipped if found == content else found


@pytest.mark.fault(2, 3)
@pytest.mark.parametrize("are_summed_again", [False, True])
def test_a_damaged_bundle_is_refused(bundles: Path, thorough: bool, are_summed_again: bool) -> None:
    """Also by the parsers: with checksums of the damaged files, only harmless changes pass."""
    shutil.copytree(bundles / "v1", bundles / "whole")
    generator = random.Random(5)
    rounds, refused = 1_000 if thorough else 40, 0
    for _ in range(rounds):
        shutil.rmtree(bundles / "v1")
        shutil.copytree(bundles / "whole", bundles / "v1")
        path = generator.choice(sorted((bundles / "v1").iterdir()))
        content = mangled(path.read_bytes(), generator)
        if are_summed_again and path.name not in (MANIFEST, DIGEST):
            rewrite(path.parent, path.name, content)
        else:
            replace(path, content)
        try:
            load(bundles, "v1")
        except BundleError:
            refused += 1
    assert refused > rounds / 2 if are_summed_again else refused == rounds


DEEP_AND_HUGE = {
    "none": b"",
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
