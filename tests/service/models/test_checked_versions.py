"""The versions of a folder, with the reports of their last checks."""

from collections.abc import Callable
from pathlib import Path

from turret.service.models.checked_versions import checked_versions
from turret.service.models.gate import GateRequest, run_gate
from turret.tower.bundle.publish import BundleContents, publish

Make = Callable[..., BundleContents]


def test_a_version_has_the_report_of_its_check(bundles: Path, make_contents: Make) -> None:
    publish(bundles, make_contents("v2", seed=3))
    report = run_gate(GateRequest(root=bundles, version="v2", live="v1"))
    assert {one.version: one.gate for one in checked_versions(bundles)} == {"v1": None, "v2": report}
