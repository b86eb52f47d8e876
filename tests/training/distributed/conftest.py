"""The jobs of several processes, done once for all tests of this folder."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port
from tests.training.distributed import jobs
from tests.training.distributed.processes import Job, in_processes
from tests.training.distributed.scenarios import BY_ROW, REFUSED, SPLIT, STEPS, TRAINED
from turret.data.prepared import PreparedData
from turret.training.distributed.processes import Processes
from turret.training.distributed.world import World
from turret.training.optimisers import optimiser
from turret.training.parallel import tables


@dataclass(frozen=True)
class Answers:
    """What each job returned, by name, number of processes and rank; and the folder of its run."""

    folder: Path
    of: dict[tuple[str, int], list[Any]]

    def __getitem__(self, job: tuple[str, int]) -> list[Any]:
        return self.of[job]


@pytest.fixture(scope="session")
def answers(shop: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """All jobs: a world of one in this process, the others in four processes that stay the same."""
    folder, data = tmp_path_factory.mktemp("distributed"), shop.folder
    split, by_row, whole = folder / "split", folder / "by_row", folder / "whole"
    trained = jobs.Scenario(TRAINED, split_from=3)
    named: dict[tuple[str, int], tuple[Any, ...]] = {
        ("steps", 4): (jobs.first_steps, folder, STEPS),
        ("saved", 4): (jobs.saved, split, SPLIT),
        ("saved by row", 4): (jobs.saved, by_row, BY_ROW),
        ("resumed", 4): (jobs.resumed, split, SPLIT),
        ("resumed", 3): (jobs.resumed, split, SPLIT),
        ("resumed by row", 3): (jobs.resumed, by_row, BY_ROW),
        ("resumed whole", 3): (jobs.resumed, whole, BY_ROW),
        ("steps", 2): (jobs.first_steps, folder, STEPS),
        ("trained", 2): (jobs.trained, folder / "trained", jobs.Scenario(TRAINED)),
        ("trained split", 2): (jobs.trained, folder / "trained split", trained),
        **{(name, 2): (jobs.refused, folder, one) for name, one in REFUSED.items()},
    }
    large, split_from = optimiser.LARGE, tables.SPLIT_FROM
    of: dict[tuple[str, int], list[Any]] = {("saved whole", 1): [jobs.saved(World(), data, whole, BY_ROW)]}
    found = in_processes(
        [Job(size, job, (data, *arguments)) for (_, size), (job, *arguments) in named.items()]
    )
    of |= dict(zip(named, found, strict=True))
    of["steps", 1] = [jobs.first_steps(World(), data, folder, STEPS)]
    of["resumed", 1] = [jobs.resumed(World(), data, split, SPLIT)]
    of["resumed by row", 1] = [jobs.resumed(World(), data, by_row, BY_ROW)]
    optimiser.LARGE, tables.SPLIT_FROM = large, split_from
    return Answers(folder, of)


@pytest.fixture
def lone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    """This process, connected to itself alone as several are to each other."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "RANK": "0", "WORLD_SIZE": "1"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    world = Processes.joined()
    yield world
    world.close()
