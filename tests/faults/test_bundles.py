"""Bundles that must not be served: the running service refuses them, counts that, and goes on as it was."""

import os
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
from turret.tower.bundle.publish import publish
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
    (lambda version: change_manifest(version, format_version=3), "is of format 3", "checksum"),
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
