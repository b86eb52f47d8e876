"""The gate that a version has to pass before it answers, its memory, and the log of what went live."""

import hashlib
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import contents
from turret.service.versions import gate
from turret.service.versions.folder_commands import checked_versions
from turret.service.versions.gate import run_gate
from turret.service.versions.gate_report import GateReport, GateRequest, read_report
from turret.service.versions.memory import available_bytes
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import load, overlap_between
from turret.tower.bundle.publish import publish
from turret.tower.format.index_settings import IvfSettings, SearchParams
from turret.tower.format.manifest import IndexChoice, MeasuredRecall, read_manifest

ALL = ["memory", "checksum", "soundness", "golden", "recall", "metric", "overlap"]


@pytest.fixture
def root(bundles: Path) -> Path:
    """v2 beside the live v1."""
    publish(bundles, contents("v2", seed=3))
    return bundles


def names(report: GateReport) -> list[str]:
    return [check.name for check in report.checks]


# --- The gate


def test_a_sound_version_passes_every_check_and_the_result_is_kept(root: Path) -> None:
    report = run_gate(GateRequest(root=root, version="v2", live="v1"))
    assert names(report) == ALL
    assert report.passed
    assert re.search(r"its best 10 have 0\.\d{3} in common", report.checks[-1].words)
    assert read_report(root, "v2") == report
    assert {one.version: one.gate for one in checked_versions(root)} == {"v1": None, "v2": report}


def change(path: Path) -> None:
    """Change the first bytes of a read-only file."""
    path.chmod(0o644)
    path.write_bytes(hashlib.sha256(path.read_bytes()).digest() + path.read_bytes()[32:])


@pytest.mark.parametrize("name", ["item_vectors.npy", "user_tower.onnx", "golden.json", "manifest.json"])
def test_a_changed_file_is_a_wrong_checksum(root: Path, name: str) -> None:
    """Which `force` does not help against, and the version counts as verified no more."""
    change(root / "v2" / name)
    report = run_gate(GateRequest(root=root, version="v2", live="v1", force=True))
    assert (report.passed, report.reason) == (False, "checksum")
    assert name in report.refusal
    assert names(report)[-1] == "checksum"


def test_a_version_without_a_manifest_or_of_another_name_is_a_wrong_checksum(root: Path) -> None:
    shutil.copytree(root / "v2", root / "v9")
    report = run_gate(GateRequest(root=root, version="v9"))
    assert (report.passed, report.reason) == (False, "checksum")
    assert "holds version 'v2'; rename it to that" in report.refusal
    (root / "v2" / "manifest.json").unlink()
    assert run_gate(GateRequest(root=root, version="v2")).reason == "checksum"


@pytest.mark.fault(51)
@pytest.mark.parametrize("version", ["v3", "../v2", "", "link"])
def test_what_is_not_there_or_a_link_does_not_pass_and_leaves_no_report(root: Path, version: str) -> None:
    (root / "link").symlink_to("v2")
    report = run_gate(GateRequest(root=root, version=version))
    assert (report.passed, report.reason) == (False, "unknown")
    assert not (root / ".gate").exists()


@pytest.mark.fault(11)
def test_memory_is_asked_for_before_anything_is_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(one.bytes for one in read_manifest(root / "v2").files.values())
    for available, passed in ((1.5 * size - 1, False), (1.5 * size, True), (None, True)):
        monkeypatch.setattr(gate, "available_bytes", lambda available=available: available)
        report = run_gate(GateRequest(root=root, version="v2"))
        assert report.passed == passed
        assert passed or names(report) == ["memory"]


def gate_of(
    root: Path, monkeypatch: pytest.MonkeyPatch, recall: dict[float, float], chosen: float = 0.5
) -> GateReport:
    """The report on an index measured among shares of the items, and chosen for a recall of `chosen`."""
    manifest = read_manifest(root / "v2")
    table = tuple(MeasuredRecall(k=10, selectivity=share, recall=value) for share, value in recall.items())
    settings = IvfSettings(efforts=(SearchParams(k=10, candidates=20),), lists=1)
    choice = IndexChoice(asked="auto", recall=chosen)
    changed = {"index": settings, "recall": table, "index_choice": choice}
    # The index itself is the exact one: only the manifest's words on it count here.
    opened = load(root, "v2")
    opened.manifest = manifest.model_copy(update=changed)
    monkeypatch.setattr(Bundle, "open", lambda *_, **__: opened)
    return run_gate(GateRequest(root=root, version="v2", recall_minimum=0.95))


@pytest.mark.parametrize(
    ("recall", "chosen", "refusal"),
    [
        ({}, 0.5, "recall"),
        ({1.0: 0.90}, 0.8, "0.9000 of the best 10 among all items, less than TURRET_RECALL_MINIMUM = 0.95"),
        ({1.0: 0.95}, 0.5, None),
        ({1.0: 0.99, 0.1: 0.9, 0.01: 0.97}, 0.5, "finds 0.9000 of the best 10 among 0.1 of the items"),
        (
            {1.0: 0.97},
            0.98,
            "less than the 0.98 that it was made for; index it again with `turret index --recall 0.98`",
        ),  # for which it was chosen: also where the service asks for less
        ({1.0: 0.97}, 0.96, None),
    ],
)
def test_an_approximate_index_needs_the_recall_that_is_asked_in_its_worst_row(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    recall: dict[float, float],
    chosen: float,
    refusal: str | None,
) -> None:
    report = gate_of(root, monkeypatch, recall, chosen)
    assert report.passed == (refusal is None)
    if refusal is not None:
        assert report.reason == "recall"
        assert refusal in report.refusal


def test_too_little_in_common_is_refused_but_can_be_forced(root: Path) -> None:
    asked = GateRequest(root=root, version="v2", live="v1", overlap_minimum=0.9)
    refused = run_gate(asked)
    assert (refused.passed, refused.reason) == (False, "overlap")
    assert "force" in refused.refusal
    forced = run_gate(asked.model_copy(update={"force": True}))
    assert (forced.passed, names(forced)) == (True, ALL)
    assert forced.failed
    for live in (None, "v1"):  # nothing to be compared with
        assert run_gate(GateRequest(root=root, version="v1", live=live, overlap_minimum=1.0)).passed


def test_reports_are_neither_written_nor_read_through_links(root: Path, tmp_path: Path) -> None:
    """Where none can be written, it is only returned."""
    (tmp_path / "elsewhere").mkdir()
    (root / ".gate").symlink_to(tmp_path / "elsewhere")
    report = run_gate(GateRequest(root=root, version="v2", live="v1"))
    assert report.passed
    assert list((tmp_path / "elsewhere").iterdir()) == []
    (tmp_path / "elsewhere" / "v2.json").write_text(report.model_dump_json())
    assert read_report(root, "v2") is None
    (root / ".gate").unlink()
    (root / ".gate").mkdir()
    (root / ".gate" / "v2.json").symlink_to("/dev/zero")
    assert read_report(root, "v2") is None


# --- What two versions have in common


@pytest.mark.parametrize(
    ("live", "other", "overlap"),
    [([1, 2, 3, 4], [4, 3, 9, 8], 0.5), ([1], [1, 2, 3, 4], 0.25), ([], [], 1.0), ([7], ["7"], 1.0)],
)
def test_the_overlap_is_the_same_from_both_sides(live: list[Any], other: list[Any], overlap: float) -> None:
    assert overlap_between(live, other) == overlap_between(other, live) == overlap


# --- Memory


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("mine", "above", "left"),
    [("max", None, 1_024_000), (None, None, 1_024_000), ("900000", None, 350_000), (None, "500", 0)],
)
def test_a_limit_of_version_two_leaves_what_is_not_used(
    tmp_path: Path, mine: str | None, above: str | None, left: int
) -> None:
    """Pages of files that the system can drop are not used; the limit of a group above counts too."""
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    write(proc / "meminfo", "MemTotal: 5000 kB\nMemAvailable:    1000 kB\n")  # of the machine
    write(proc / "self" / "cgroup", "0::/service/worker\n")
    for group, limit in ((groups / "service" / "worker", mine), (groups / "service", above)):
        if limit is not None:
            write(group / "memory.max", f"{limit}\n")
            write(group / "memory.current", "600000\n")
            write(group / "memory.stat", "anon 100\ninactive_file 50000\n")
    assert available_bytes(proc, groups) == left
