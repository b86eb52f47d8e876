"""Damage of every kind to the files of a bundle: none is opened, and nothing ends the process."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import contents
from tests.support.bundle_damage import replace, rewrite
from turret.tower.bundle.bundle import load
from turret.tower.bundle.publish import publish
from turret.tower.errors import BundleError
from turret.tower.format.manifest import DIGEST, MANIFEST

Damage = Callable[[Path, random.Random], None]
# Rounds of `--thorough`; where checksums are made to agree, only a part of the damage can be seen.
ROUNDS, SEALED_ROUNDS = 1000, 300


def some_file(folder: Path, generator: random.Random) -> Path:
    return generator.choice(sorted(folder.iterdir()))


def flip_bits(folder: Path, generator: random.Random) -> None:
    path = some_file(folder, generator)
    content = bytearray(path.read_bytes())
    for _ in range(generator.choice([1, 1, 1, 8])):
        content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
    if bytes(content) == path.read_bytes():  # the same bit twice
        content[0] ^= 1
    replace(path, bytes(content))


def cut(folder: Path, generator: random.Random) -> None:
    path = some_file(folder, generator)
    content = path.read_bytes()
    replace(path, content[: generator.randrange(len(content))])


def insert(folder: Path, generator: random.Random) -> None:
    path = some_file(folder, generator)
    content, place = path.read_bytes(), generator.randrange(path.stat().st_size + 1)
    replace(path, content[:place] + generator.randbytes(generator.randint(1, 100)) + content[place:])


def zero(folder: Path, generator: random.Random) -> None:
    path = some_file(folder, generator)
    content = bytearray(path.read_bytes())
    first = generator.choice([place for place, byte in enumerate(content) if byte])
    last = min(len(content), first + generator.randint(1, 4096))
    content[first:last] = bytes(last - first)
    replace(path, bytes(content))


def edit_manifest(folder: Path, generator: random.Random) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    name = generator.choice(sorted(manifest))
    others: list[Any] = [None, -1, 10**12, "x", [], {}, {"a": 1}, 1.5, True]
    manifest[name] = generator.choice([value for value in others if value != manifest[name]])
    replace(folder / MANIFEST, json.dumps(manifest, indent=generator.choice([None, 2])).encode())


def take_from_another(folder: Path, generator: random.Random) -> None:
    """A file of another version; equal ones are no damage."""
    other = folder.parent / "v2"
    names = [
        path.name
        for path in sorted(folder.iterdir())
        if path.read_bytes() != (other / path.name).read_bytes()
    ]
    name = generator.choice(names)
    replace(folder / name, (other / name).read_bytes())


def no_file(folder: Path, generator: random.Random) -> None:
    path = some_file(folder, generator)
    content = path.read_bytes()
    path.unlink()
    kind = generator.choice(["folder", "pipe", "link", "dangling", "loop", "device"])
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        (folder.parent / "elsewhere").write_bytes(content)
        path.symlink_to(folder.parent / "elsewhere")
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.symlink_to(path if kind == "loop" else folder / "nowhere")


KINDS: list[Damage] = [flip_bits, cut, insert, zero, edit_manifest, take_from_another, no_file]


@pytest.fixture
def pair(bundles: Path) -> Path:
    """The version `whole`, and beside it v2 of the same ids and sizes, to take files from."""
    publish(bundles, contents("v2", seed=1, temperature=0.4))
    (bundles / "v1").rename(bundles / "whole")
    return bundles


def damaged(root: Path, damage: Damage, generator: random.Random) -> None:
    shutil.rmtree(root / "v1", ignore_errors=True)
    shutil.copytree(root / "whole", root / "v1")
    damage(root / "v1", generator)


@pytest.mark.fault(2)
@pytest.mark.parametrize("damage", KINDS)
def test_a_damaged_bundle_is_refused(pair: Path, damage: Damage, thorough: bool) -> None:
    """Bits, cuts, exchanges: each is refused in a sentence."""
    generator = random.Random(5)
    for _ in range(ROUNDS // len(KINDS) if thorough else 5):
        damaged(pair, damage, generator)
        with pytest.raises(BundleError):
            load(pair, "v1")
    damaged(pair, lambda folder, _: None, generator)
    load(pair, "v1")


@pytest.mark.fault(3)
def test_what_no_checksum_sees_ends_no_process_either(pair: Path, thorough: bool) -> None:
    """Files damaged before they were published, so to speak: the parsers meet them, crafted headers too."""
    generator = random.Random(6)
    refused = 0
    rounds = SEALED_ROUNDS if thorough else 40
    for number in range(rounds):
        damaged(pair, KINDS[number % 4], generator)
        folder = pair / "v1"
        for path in sorted(folder.iterdir()):
            content = path.read_bytes()
            if path.name not in (MANIFEST, DIGEST) and content != (pair / "whole" / path.name).read_bytes():
                shutil.copy(pair / "whole" / MANIFEST, folder / MANIFEST)
                rewrite(folder, path.name, content)
        try:
            load(pair, "v1")
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
