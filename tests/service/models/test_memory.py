from pathlib import Path

import pytest

from turret.service.models.memory import available_bytes, in_words, needed_bytes
from turret.tower.format.engine_settings import EngineEffort, EngineSettings
from turret.tower.format.manifest import read_manifest


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> tuple[Path, Path]:
    """A machine of which 1000 kB are available, with no groups."""
    write(tmp_path / "proc" / "meminfo", "MemTotal: 5000 kB\nMemAvailable:    1000 kB\n")
    return tmp_path / "proc", tmp_path / "cgroup"


def test_without_groups_the_machine_decides(machine: tuple[Path, Path]) -> None:
    assert available_bytes(*machine) == 1_024_000


def test_nothing_known_is_nothing(tmp_path: Path) -> None:
    assert available_bytes(tmp_path, tmp_path) is None


@pytest.mark.parametrize("limit", ["max\n", "900000\n"])
def test_a_limit_of_version_two_leaves_what_is_not_used(machine: tuple[Path, Path], limit: str) -> None:
    """Pages of files that the system can drop are not used."""
    proc, groups = machine
    write(proc / "self" / "cgroup", "0::/service/worker\n")
    write(groups / "service" / "worker" / "memory.max", limit)
    write(groups / "service" / "worker" / "memory.current", "600000\n")
    write(groups / "service" / "worker" / "memory.stat", "anon 100\ninactive_file 50000\n")
    assert available_bytes(*machine) == (1_024_000 if limit == "max\n" else 350_000)


def test_the_limit_of_a_group_above_counts_too(machine: tuple[Path, Path]) -> None:
    proc, groups = machine
    write(proc / "self" / "cgroup", "0::/service/worker\n")
    write(groups / "service" / "memory.max", "500\n")
    write(groups / "service" / "memory.current", "600\n")
    assert available_bytes(*machine) == 0


@pytest.mark.parametrize(("limit", "left"), [("9223372036854771712", 1_024_000), ("5000", 3000)])
def test_a_limit_of_version_one(machine: tuple[Path, Path], limit: str, left: int) -> None:
    proc, groups = machine
    write(proc / "self" / "cgroup", "5:cpu:/x\n4:memory:/docker/abc\n")
    # In a container the path of the host isn't there: the root is the group.
    write(groups / "memory" / "memory.limit_in_bytes", limit)
    write(groups / "memory" / "memory.usage_in_bytes", "2500")
    write(groups / "memory" / "memory.stat", "total_inactive_file 500\n")
    assert available_bytes(*machine) == left


def test_this_machine_tells() -> None:
    available = available_bytes()
    assert available is None or available > 1_000_000


def test_bytes_in_words() -> None:
    assert (in_words(1_500_000), in_words(2.5e9)) == ("1.5 MB", "2.5 GB")


def test_a_version_needs_a_multiple_of_its_files(bundles: Path) -> None:
    manifest = read_manifest(bundles / "v1")
    listed = sum((bundles / "v1" / name).stat().st_size for name in manifest.files)
    assert needed_bytes(manifest, 1.5) == 1.5 * listed


def test_vectors_of_a_version_on_an_engine_do_not_count(bundles: Path) -> None:
    """They are mapped, and searched there."""
    manifest = read_manifest(bundles / "v1")
    effort = EngineEffort(rows=1, k=1, breadth=1, recall=1.0)
    settings = EngineSettings(engine="redis", url="redis://e", collection="c", alias="a", efforts=(effort,))
    files = {name: (bundles / "v1" / name).stat().st_size for name in manifest.files}
    mapped = files["item_vectors.npy"] + files.get("model.safetensors", 0)
    assert needed_bytes(manifest.model_copy(update={"index": settings}), 1.5) == 1.5 * (
        sum(files.values()) - mapped
    )
