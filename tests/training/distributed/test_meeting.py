"""The processes of one start of torchrun, which keeps the store of the starts before."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from torch._C._distributed_c10d import HashStore

from turret.training.distributed.meeting import PAUSE, meet


def test_the_processes_of_each_start_have_a_name_that_no_other_has() -> None:
    store = HashStore()
    names = []
    for size in (3, 3, 2, 3):
        with ThreadPoolExecutor(size) as pool:
            (name,) = set(pool.map(lambda rank, size=size: meet(store, rank, size), range(size)))
        names.append(name)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("stays", [0, 1])
def test_a_process_does_not_meet_one_of_an_earlier_start(stays: int) -> None:
    """One that comes early finds what an ended one has left, and waits for the new one."""
    store = HashStore()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda rank: meet(store, rank, 2), (0, 1)))
        early = pool.submit(meet, store, stays, 2)
        with pytest.raises(TimeoutError):
            early.result(timeout=5 * PAUSE)
        assert meet(store, 1 - stays, 2) == early.result(timeout=10)
