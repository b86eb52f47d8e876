"""Runs a function in several processes that are connected as `torchrun` connects them."""

import multiprocessing
import os
import traceback
from collections.abc import Callable
from typing import Any

from tests.ports import free_port
from turret.training.process import set_up_process

# Longer than any job of the tests, two times over.
MOST_SECONDS = 120.0


def in_processes(size: int, job: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `job(world, *arguments)` returns in each of `size` processes of one thread, by rank."""
    context = multiprocessing.get_context("spawn")
    results, port = context.Queue(), free_port()
    processes = [
        context.Process(target=_run, args=(rank, size, port, results, job, arguments)) for rank in range(size)
    ]
    for process in processes:
        process.start()
    try:
        answers = dict(results.get(timeout=MOST_SECONDS) for _ in processes)
    finally:
        for process in processes:
            process.join(MOST_SECONDS if process.exitcode is None and not _failed(process) else 0)
            process.kill()
    failed = [answer for answer in answers.values() if isinstance(answer, FailedProcessError)]
    if failed:
        raise AssertionError("\n".join(str(failure) for failure in failed))
    return [answers[rank] for rank in range(size)]


class FailedProcessError(Exception):
    """What a process raised, as text."""


def _failed(process: Any) -> bool:
    return process.exitcode not in (None, 0)


def _run(rank: int, size: int, port: int, results: Any, job: Callable[..., Any], arguments: Any) -> None:
    set_up_process()
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
    import torch

    from turret.training.distributed.world import join_world

    torch.set_num_threads(1)
    try:
        world = join_world()
        answer = job(world, *arguments)
        world.wait()
        world.close()
    except Exception:
        answer = FailedProcessError(traceback.format_exc())
    results.put((rank, answer))
