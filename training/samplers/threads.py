"""Compiled work on as many threads as torch uses."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import torch


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="turret-sampler")


def in_parts(count: int, work: Callable[[int, int], object], least: int = 1) -> None:
    """Call `work(start, stop)` on parts of range(`count`), none much smaller than `least`.

    `work` must not depend on how the range is cut. There are a few parts a thread, as some take longer.
    """
    threads = torch.get_num_threads()
    parts = min(4 * threads, count // least)
    if threads == 1 or parts < 2:
        if count:
            work(0, count)
        return
    cuts = [count * part // parts for part in range(parts + 1)]
    for done in [_pool(threads).submit(work, *ends) for ends in pairwise(cuts)]:
        done.result()
