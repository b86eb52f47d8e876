"""Bundles that must not be served: none is opened, none ends the process, and the service goes on."""

import os
import random
import shutil
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import contents
from tests.support.bundle_damage import change_manifest, replace, rewrite, thief
from tests.support.service_calls import activate, ask, metric
from tests.support.service_process import Start
from turret.tower.bundle.golden import load
from turret.tower.bundle.publish import publish
from turret.tower.errors import BundleError
from turret.tower.format.listing import current
from turret.tower.format.manifest import DIGEST, MANIFEST


def not_finite(version: Path) -> None:
    content = BytesIO()
    np.save(content, np.full_like(np.load(version / "item_vectors.npy"), np.nan))
    rewrite(version, "item_vectors.npy", content.getvalue())


def not_there_yet(version: Path) -> None:
    """Its manifest is there before its files."""
    for path in version.iterdir():
        if path.name not in (MANIFEST, DIGEST):
            path.unlink()


def of_another_model(version: Path) -> None:
    rewrite(version, "golden.json", (version.parent / "v1" / "golden.json").read_bytes())


# Each with words of the refusal and its reason in the metrics; tests/tower has the other kinds of damage.
DAMAGES: list[tuple[Callable[[Path], object], str, str]] = [
    (lambda version: replace(version / "item_vectors.npy", b"x"), "not the file that was", "checksum"),
    (lambda version: change_manifest(version, format_version=5), "is of format 5", "checksum"),
    (not_there_yet, "can't be read", "checksum"),
    (not_finite, "not finite in row 0", "soundness"),
    # The working directory of a service under test is the repository; its own files do for a secret.
    (lambda version: rewrite(version, "user_tower.onnx", thief("pyproject.toml")), "file", "soundness"),
    (of_another_model, "different models", "golden"),
]


@pytest.mark.process
@pytest.mark.fault(1, 4, 5, 6, 7, 34, 48)
def test_a_running_service_refuses_damaged_versions(start: Start, bundles: Path) -> None:
    """It began by removing what a publication that was killed has left."""
    left = shutil.copytree(bundles / "v1", bundles / ".publishing-v2-0123")
    os.utime(left, (1e9, 1e9))
    service = start()
    assert not left.exists()
    before = ask(service, history=[101, 102])
    for place, (damage, words, reason) in enumerate(DAMAGES):
        damage(publish(bundles, contents(f"damaged{place}", seed=1)))
        counted = metric(service, f'turret_reload_failures_total{{reason="{reason}"}}')
        refused = activate(service, bundles, f"damaged{place}")
        assert refused.status_code == 409
        message = refused.json()["error"]["message"]
        assert words in message
        assert "version v1 stays live" in message
        assert metric(service, f'turret_reload_failures_total{{reason="{reason}"}}') == counted + 1
        assert service.client.get("/readyz").json() == {"status": "ready", "version": "v1"}
        assert ask(service, history=[101, 102]) == before
    assert current(bundles) == "v1"


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
