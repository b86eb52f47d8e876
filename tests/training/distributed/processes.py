"""Runs functions in several processes that are connected as `torchrun` connects them."""

import multiprocessing
import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.ports import free_port
from turret.training.process import set_up_process

# Twice as long as all jobs of the tests take on a busy machine.
MOST_SECONDS = 240.0


@dataclass(frozen=True)
class Job:
    """A function of a world of `size` processes and of `arguments`."""

    size: int
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


class FailedProcessError(Exception):
    """The traceback of a process."""


def in_processes(jobs: Sequence[Job]) -> list[list[Any]]:
    """What each job returned by rank; the same processes, of one thread each, do one job after the other.

    To start processes takes longer than most jobs.
    """
    context = multiprocessing.get_context("spawn")
    results, ports = context.Queue(), [free_port() for _ in jobs]
    processes = [
        context.Process(target=_run, args=(rank, ports, results, jobs))
        for rank in range(max(job.size for job in jobs))
    ]
    for process in processes:
        process.start()
    answers: dict[tuple[int, int], Any] = {}
    try:
        while len(answers) < sum(job.size for job in jobs):
            number, rank, answer = results.get(timeout=MOST_SECONDS)
            if isinstance(answer, FailedProcessError):
                raise AssertionError(f"process {rank} in job {number}:\n{answer}")
            answers[number, rank] = answer
    finally:
        for process in processes:
            process.kill()
            process.join()
    return [[answers[number, rank] for rank in range(job.size)] for number, job in enumerate(jobs)]


def _run(rank: int, ports: list[int], results: Any, jobs: Sequence[Job]) -> None:
    set_up_process()
    import torch

    torch.set_num_threads(1)
    for number, (job, port) in enumerate(zip(jobs, ports, strict=True)):
        if rank < job.size:
            results.put((number, rank, _answer(rank, port, job)))


def _answer(rank: int, port: int, job: Job) -> Any:
    from turret.training.distributed.joining import join_world

    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(job.size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    try:
        world = join_world()
        answer = job.function(world, *job.arguments)
        world.wait()
        world.close()
    except Exception:
        return FailedProcessError(traceback.format_exc())
    return answer
