import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turret.service.comparison import opening
from turret.service.comparison.background import BackgroundThread
from turret.service.comparison.opening import VersionOpener
from turret.service.errors import ConflictError, NotFoundError
from turret.service.models import gate
from turret.service.models.activation import Activator
from turret.service.models.gate import GateRequest, Passage, crashed, pass_gate, read_report
from turret.service.models.loaded_model import LoadedModel
from turret.service.models.model_holder import ModelHolder
from turret.service.settings import Settings
from turret.tower.bundle.publish import BundleContents, publish

Make = Callable[..., BundleContents]


@pytest.fixture
def two(bundles: Path, make_contents: Make) -> Path:
    publish(bundles, make_contents("v2", ids=range(200, 230), seed=1))
    return bundles


async def _pass(request: GateRequest) -> Passage:
    return pass_gate(request)


def opened(root: Path, version: str, manifest: str | None = None, run_gate: Any = _pass) -> LoadedModel:
    async def run() -> LoadedModel:
        thread, holder = BackgroundThread("test"), ModelHolder(root)
        opener = VersionOpener(holder, Activator(holder, Settings(bundles=root), run_gate), thread, 1.5)
        try:
            await opener.find(version)
            return await opener.open(version, manifest)
        finally:
            await thread.close()

    return asyncio.run(run())


def test_a_version_with_nothing_in_common_is_opened_and_its_report_says_so(two: Path) -> None:
    """The gate would not let it go live."""
    assert opened(two, "v2").version == "v2"
    report = read_report(two, "v2")
    assert report is not None
    assert [check.name for check in report.failed] == ["overlap"]


def test_what_has_passed_the_gate_is_not_checked_again(two: Path) -> None:
    manifest = opened(two, "v2").bundle.snapshot.manifest
    assert opened(two, "v2", manifest, None).version == "v2"
    with pytest.raises(ConflictError, match="its manifest has SHA-256"):
        opened(two, "v2", "0" * 64, None)


def test_an_unknown_version_is_refused_with_the_known_ones(two: Path) -> None:
    with pytest.raises(NotFoundError, match="there are: v1, v2"):
        opened(two, "v3")


def test_a_version_that_crashes_its_check_is_refused(two: Path) -> None:
    async def crash(request: GateRequest) -> Passage:
        return crashed(request, "by signal 11")

    with pytest.raises(ConflictError, match="ended by signal 11; export it again"):
        opened(two, "v2", run_gate=crash)


@pytest.mark.parametrize("module", [gate, opening])
def test_the_memory_is_checked_by_the_gate_and_by_each_worker(
    two: Path, module: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "available_bytes", lambda: 1000)
    with pytest.raises(ConflictError, match="give the service more memory"):
        opened(two, "v2")


def test_a_memory_that_nobody_knows_is_no_obstacle(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (gate, opening):
        monkeypatch.setattr(module, "available_bytes", lambda: None)
    assert opened(two, "v2").version == "v2"


def test_a_memory_that_ends_while_a_version_is_opened_is_said(
    two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> LoadedModel:
        raise MemoryError

    monkeypatch.setattr(opening, "open_live", fail)
    with pytest.raises(ConflictError, match="the memory is full; give"):
        opened(two, "v2")
