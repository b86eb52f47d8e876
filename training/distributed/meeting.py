"""How the processes of one start of a training find each other, and no process of an earlier start."""

import secrets
import time
from datetime import timedelta

from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

# Seconds between two looks for the others.
PAUSE = 0.05


def met_store(timeout: timedelta) -> tuple[Store, int, int]:
    """The store of the processes of this start, this one's rank, and their number.

    torchrun keeps one store for all restarts, with the addresses of processes that have ended. gloo reads
    those where a process has not yet written its new one, and is refused, or waits for half an hour if
    another program has got the port. torch 2.13 takes it for a new store. TORCHELASTIC_RESTART_COUNT does
    not name the start: only the machine on which a process has ended counts it.
    """
    store, rank, size = next(rendezvous("env://", timeout=timeout))
    return PrefixStore(meet(store, rank, size), store), rank, size


def meet(store: Store, rank: int, size: int) -> str:
    """Wait for the other processes; returns a name that these have and those of other starts don't.

    Each process writes a token under its rank. The tokens of all ranks name a meeting, which is held when
    all of them have come. A token of an earlier start names one to which its process does not come.
    """
    own, places = secrets.token_hex(8), [f"process {one}" for one in range(size)]
    store.set(places[rank], own)
    come: set[str] = set()
    while True:
        if store.check(places):
            meeting = " ".join(store.get(place).decode() for place in places)
            if store.add(meeting, int(meeting not in come)) == size:
                return meeting
            come.add(meeting)
        time.sleep(PAUSE)
