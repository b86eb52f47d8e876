import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from turret.service.models import gate
from turret.service.models.gate import GateRequest, crashed, read_report, run_gate
from turret.tower.bundle.bundle import Bundle, load
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.errors import EngineError
from turret.tower.format.index_settings import ScalarSettings, SearchParams
from turret.tower.format.manifest import IndexChoice, MeasuredRecall, read_manifest

Make = Callable[..., BundleContents]
ALL = ["memory", "checksum", "soundness", "golden", "recall", "overlap"]


@pytest.fixture
def two(bundles: Path, make_contents: Make) -> Path:
    publish(bundles, make_contents("v2", seed=3))
    return bundles


def names(report: gate.GateReport) -> list[str]:
    return [check.name for check in report.checks]


def test_a_sound_version_passes_every_check_and_the_result_is_kept(two: Path) -> None:
    report = run_gate(GateRequest(root=two, version="v2", live="v1"))
    assert names(report) == ALL
    assert report.passed
    assert read_report(two, "v2") == report
    assert 0 < (report.checks[-1].figure or 0) < 1


@pytest.mark.parametrize("name", ["item_vectors.npy", "user_tower.onnx", "golden.json"])
def test_a_changed_file_is_a_wrong_checksum(two: Path, name: str) -> None:
    path = two / "v2" / name
    path.chmod(0o644)
    path.write_bytes(hashlib.sha256(path.read_bytes()).digest() + path.read_bytes()[32:])
    report = run_gate(GateRequest(root=two, version="v2", live="v1"))
    assert (report.passed, report.reason) == (False, "checksum")
    assert name in report.refusal
    assert names(report) == ["memory", "checksum"]


def test_a_manifest_that_is_missing_is_a_wrong_checksum(two: Path) -> None:
    (two / "v2" / "manifest.json").unlink()
    assert run_gate(GateRequest(root=two, version="v2")).reason == "checksum"


@pytest.mark.parametrize("version", ["v3", "../v2", ""])
def test_what_is_not_there_leaves_no_report(two: Path, version: str) -> None:
    report = run_gate(GateRequest(root=two, version=version))
    assert (report.passed, report.reason) == (False, "unknown")
    assert not (two / ".gate").exists()


@pytest.mark.parametrize(("factor", "passed"), [(1.0, True), (1e12, False)])
def test_memory_is_asked_for_before_anything_is_read(two: Path, factor: float, passed: bool) -> None:
    report = run_gate(GateRequest(root=two, version="v2", memory_factor=factor))
    assert report.passed == passed
    if not passed:
        assert names(report) == ["memory"]


def test_a_limit_in_the_way_refuses(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = read_manifest(two / "v2").files.values()
    size = sum(one.bytes for one in files)
    for available, passed in ((2 * size - 1, False), (2 * size, True), (None, True)):
        monkeypatch.setattr(gate, "available_bytes", lambda available=available: available)
        report = run_gate(GateRequest(root=two, version="v2", memory_factor=2.0))
        assert report.passed == passed


def gate_of(
    two: Path, monkeypatch: pytest.MonkeyPatch, recall: dict[float, float], chosen: float = 0.5
) -> gate.GateReport:
    """The report on an index measured among shares of the items, and chosen for a recall of `chosen`."""
    manifest = read_manifest(two / "v2")
    table = tuple(MeasuredRecall(k=10, selectivity=share, recall=value) for share, value in recall.items())
    settings = ScalarSettings(efforts=(SearchParams(k=10, candidates=20),))
    choice = IndexChoice(asked="auto", recall=chosen)
    changed = {"index": settings, "recall": table, "index_choice": choice}
    monkeypatch.setattr(gate, "read_manifest", lambda _: manifest.model_copy(update=changed))
    # The index itself is the exact one: only the manifest's words on it count here.
    opened = load(two, "v2")
    monkeypatch.setattr(Bundle, "open", lambda *_, **__: opened)
    return run_gate(GateRequest(root=two, version="v2", recall_minimum=0.95))


@pytest.mark.parametrize(("recall", "passed"), [(None, False), (0.90, False), (0.95, True), (0.99, True)])
def test_an_approximate_index_needs_the_recall_that_is_asked(
    two: Path, monkeypatch: pytest.MonkeyPatch, recall: float | None, passed: bool
) -> None:
    report = gate_of(two, monkeypatch, {} if recall is None else {1.0: recall})
    assert report.passed == passed
    if not passed:
        assert report.reason == "recall"


def test_the_worst_row_of_the_measured_recall_decides(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = gate_of(two, monkeypatch, {1.0: 0.99, 0.1: 0.9, 0.01: 0.97})
    assert (report.passed, report.reason) == (False, "recall")
    assert "finds 0.9000 of the best 10 among 0.1 of all" in report.refusal


@pytest.mark.parametrize(("chosen", "passed"), [(0.98, False), (0.96, True)])
def test_an_index_needs_the_recall_that_it_was_chosen_for(
    two: Path, monkeypatch: pytest.MonkeyPatch, chosen: float, passed: bool
) -> None:
    """Also where the service asks for less."""
    report = gate_of(two, monkeypatch, {1.0: 0.97}, chosen)
    assert report.passed == passed
    assert passed or "less than 0.98" in report.refusal


def test_a_folder_with_a_version_of_another_name_does_not_pass(two: Path) -> None:
    shutil.copytree(two / "v2", two / "v9")
    report = run_gate(GateRequest(root=two, version="v9"))
    assert (report.passed, report.reason) == (False, "checksum")
    assert "holds version 'v2'; rename it to that" in report.refusal


@pytest.mark.parametrize("damaged", [False, True])
def test_a_damaged_version_counts_as_verified_no_more(two: Path, damaged: bool) -> None:
    record = two / ".verified" / "v2.json"
    record.parent.mkdir(exist_ok=True)
    record.write_text("{}")
    if damaged:
        path = two / "v2" / "item_vectors.npy"
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert run_gate(GateRequest(root=two, version="v2")).passed == (not damaged)
    assert record.exists() == (not damaged)


def test_too_little_in_common_is_refused_but_can_be_forced(two: Path) -> None:
    asked = GateRequest(root=two, version="v2", live="v1", overlap_minimum=0.9)
    refused = run_gate(asked)
    assert (refused.passed, refused.reason) == (False, "overlap")
    assert "force" in refused.refusal
    forced = run_gate(asked.model_copy(update={"force": True}))
    assert forced.passed
    assert names(forced) == ALL
    assert forced.failed


def test_force_helps_against_nothing_else(two: Path) -> None:
    path = two / "v2" / "golden.json"
    path.chmod(0o644)
    path.write_bytes(b"{}" + path.read_bytes()[2:])
    assert not run_gate(GateRequest(root=two, version="v2", live="v1", force=True)).passed


def test_a_first_version_has_nothing_to_be_compared_with(two: Path) -> None:
    assert run_gate(GateRequest(root=two, version="v1", overlap_minimum=1.0)).passed
    assert run_gate(GateRequest(root=two, version="v1", live="v1", overlap_minimum=1.0)).passed


def test_a_check_that_did_not_live_to_tell_is_a_refusal(two: Path) -> None:
    request = GateRequest(root=two, version="v2")
    report = crashed(request, "by SIGKILL").report
    assert (report.passed, report.reason) == (False, "crashed")
    assert read_report(two, "v2") == report


def test_where_nothing_can_be_written_the_result_is_only_returned(
    two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (two / ".gate").write_text("")
    assert run_gate(GateRequest(root=two, version="v2", live="v1")).passed
    assert read_report(two, "v2") is None


@pytest.mark.fault(51)
def test_a_version_that_is_a_link_does_not_pass(two: Path, tmp_path: Path) -> None:
    (two / "v2").rename(tmp_path / "elsewhere")
    (two / "v2").symlink_to(tmp_path / "elsewhere")
    report = run_gate(GateRequest(root=two, version="v2", live="v1"))
    assert (report.passed, report.reason) == (False, "unknown")
    assert report.refusal == "v2 is no folder but a link or a file; copy the folder there"


def test_reports_are_neither_written_nor_read_through_links(two: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (two / ".gate").symlink_to(tmp_path / "elsewhere")
    report = run_gate(GateRequest(root=two, version="v2", live="v1"))
    assert report.passed
    assert list((tmp_path / "elsewhere").iterdir()) == []
    (tmp_path / "elsewhere" / "v2.json").write_text(report.model_dump_json())
    assert read_report(two, "v2") is None
    (two / ".gate").unlink()
    (two / ".gate").mkdir()
    (two / ".gate" / "v2.json").symlink_to("/dev/zero")
    assert read_report(two, "v2") is None


def test_an_engine_that_fails_during_a_check_is_a_refusal_that_names_it(
    two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the overlap of a version that is searched there, without an exact search behind it."""

    def fail(*_: object) -> float:
        raise EngineError("the Redis at redis://engine is too slow")

    monkeypatch.setattr(gate, "mean_overlap", fail)
    report = run_gate(GateRequest(root=two, version="v2", live="v1", force=True))
    assert (report.passed, report.reason) == (False, "soundness")
    assert report.refusal == (
        "its vector engine failed during the check overlap: the Redis at redis://engine is too slow; "
        "activate it again"
    )
    assert read_report(two, "v2") == report
