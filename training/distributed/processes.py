"""Several processes of one training, which `torchrun` has started, connected by torch.distributed."""

import os
import platform
import re
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from threading import Timer
from types import FrameType
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from turret.training.distributed.world import World, process_count
from turret.training.errors import TrainingError

# A process that waits longer than this for the others has lost one of them.
TIMEOUT = timedelta(minutes=10)
# Processes that torchrun has started meet within seconds.
MEETING = timedelta(minutes=3)
# Seconds between two looks for the others.
PAUSE = 0.05


class Processes(World):
    """The processes that `torchrun` has started.

    Attributes:
        group: the process group of all exchanges but DDP's, whose order would otherwise mix with theirs.
        sent: the bytes that this process has sent by kind, as the shortest known algorithms send them.
    """

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.group = dist.new_group(timeout=TIMEOUT)
        self.sent: Counter[str] = Counter()

    @classmethod
    def joined(cls) -> "Processes":
        """Meet the other processes at the address of the environment, with the GPU of the local rank if any.

        The process ends with a sentence if that takes longer than `MEETING`; torchrun then ends the others,
        or starts all again.

        Raises:
            TrainingError: they can't be reached, or the machine has fewer GPUs than processes.
        """
        backend = "gloo"
        if torch.cuda.is_available():
            device, present = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
            if device >= present:
                raise TrainingError(
                    f"process {device} of this machine has no GPU of its own: there are {present}; start "
                    f"--nproc-per-node {present}, or hide the GPUs with CUDA_VISIBLE_DEVICES= to use the CPU."
                )
            torch.cuda.set_device(device)
            backend = "cpu:gloo,cuda:nccl"
        try:
            with _ended_after(MEETING):
                store, rank, size = met_store(TIMEOUT)
                dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
                return cls()
        except (RuntimeError, ValueError) as error:
            raise TrainingError(
                f"the other processes of this training can't be reached ({_first_line(error)}); start all of "
                "them with torchrun, with the same --nnodes, --rdzv-endpoint and --rdzv-id."
            ) from None

    def sums(self, values: Sequence[float]) -> list[float]:
        """The sum over all processes of each of `values`, in float64."""
        total = torch.tensor(list(values), dtype=torch.float64)
        dist.all_reduce(total, group=self.group)
        self.count_sum("figures", total.nbytes)
        summed: list[float] = total.tolist()
        return summed

    def row_counts(self, count: int) -> list[int]:
        """The `count` of each process."""
        counts = torch.zeros(self.size, dtype=torch.int64)
        dist.all_gather_single(counts, torch.tensor([count]), group=self.group)
        self._count("figures", counts.nbytes)
        return [int(one) for one in counts]

    def gathered(self, rows: Tensor, counts: list[int] | None = None) -> Tensor:
        """`rows` [R, ...] of all processes in the order of their ranks; `counts` has each R, if known."""
        counts = self.row_counts(len(rows)) if counts is None else counts
        padded = rows.new_zeros(max(counts), *rows.shape[1:])
        padded[: len(rows)] = rows.detach()
        parts = rows.new_empty(self.size * len(padded), *rows.shape[1:])
        dist.all_gather_single(parts, padded, group=self.group)
        self._count("candidates", parts.nbytes)
        each = parts.view(self.size, *padded.shape)
        return torch.cat([part[:size] for part, size in zip(each, counts, strict=True)])

    def gathered_vectors(self, rows: Tensor, counts: list[int]) -> Tensor:
        """As `gathered`; gradients are summed in the process that the rows came from."""
        result: Tensor = _Gathered.apply(rows, self, counts)  # type: ignore[no-untyped-call]
        return result

    def scattered(self, rows: Tensor, counts: list[int]) -> Tensor:
        """The sum over all processes of their `rows` for this one: the transpose of `gathered`."""
        padded = rows.new_zeros(self.size, max(counts), *rows.shape[1:])
        for part, own in zip(padded, torch.split(rows, counts), strict=True):
            part[: len(own)] = own
        summed = rows.new_empty(padded.shape[1:])
        dist.reduce_scatter_single(summed, padded.flatten(0, 1), group=self.group)
        self._count("candidates", padded.nbytes)
        return summed[: counts[self.rank]]

    def agreed(self, value: bool) -> bool:
        """The value of process 0."""
        decided = torch.tensor([value])
        dist.broadcast(decided, 0, group=self.group)
        return bool(decided)

    def wait(self) -> None:
        """Wait until every process is here."""
        dist.barrier(group=self.group)

    def _count(self, kind: str, size: int) -> None:
        """Count an exchange of `size` bytes in all, of which a process sends all but its own share."""
        self.sent[kind] += size * (self.size - 1) // self.size

    def count_gathered(self, kind: str, size: int) -> None:
        """Count `size` bytes that a process sends to each other one."""
        self.sent[kind] += size * (self.size - 1)

    def count_sum(self, kind: str, size: int) -> None:
        """Count a sum of tensors of `size` bytes, which a process sends in parts, and again as sums."""
        self.sent[kind] += 2 * size * (self.size - 1) // self.size

    def close(self) -> None:
        """Leave the other processes, those that have ended too."""
        with suppress(RuntimeError):
            dist.destroy_process_group()

    @contextmanager
    def naming_losses(self, remedy: str) -> Iterator[None]:
        """Turn the failure of an exchange, because another process has ended, into a TrainingError.

        Also SIGTERM, which torchrun sends to the others as soon as one has ended, often before they notice.
        """

        def stop(number: int, frame: FrameType | None) -> NoReturn:
            raise TrainingError(
                f"process {self.rank} of {self.size} was stopped by SIGTERM, which torchrun sends when "
                f"another process has ended, so the training ends; {remedy}"
            )

        before = signal.signal(signal.SIGTERM, stop)
        try:
            yield
            signal.signal(signal.SIGTERM, before)
        except BaseException as error:
            # The process ends; a signal on its way must not keep it from saying why.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if not _is_of_exchange(error):
                raise
            raise TrainingError(
                f"process {self.rank} of {self.size} has lost another one ({_first_line(error)}), so the "
                f"training ends; {remedy}"
            ) from None


def _is_of_exchange(error: BaseException) -> bool:
    words = ("gloo", "nccl", "connection", "timed out", "broken pipe", "process group")
    is_named = isinstance(error, RuntimeError) and any(word in str(error).lower() for word in words)
    return isinstance(error, dist.DistError) or is_named


def _first_line(error: BaseException) -> str:
    """The first sentence of an error, without the source file that gloo begins it with."""
    line = re.sub(r"^\[[^]]*\.(cc|cpp|h):\d+\] ", "", str(error).strip().partition("\n")[0])
    return line.partition(". ")[0][:200]


@contextmanager
def _ended_after(limit: timedelta) -> Iterator[None]:
    """End the process if the block takes longer: a process that never comes has no time limit elsewhere."""
    timer = Timer(limit.total_seconds(), _end, (limit,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end(limit: timedelta) -> NoReturn:
    print(
        f"turret: the other processes of this training were not met within {limit.total_seconds():g} s; "
        "start all of them again with torchrun, with --resume if the run has begun.",
        file=sys.stderr,
        flush=True,
    )
    os._exit(1)


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


class _Gathered(torch.autograd.Function):
    """Gradients flow back to the process that a row came from."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, world: Processes, counts: list[int]) -> Tensor:
        ctx.world, ctx.counts = world, counts
        return world.gathered(rows, counts)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.world.scattered(slopes[0], ctx.counts), None, None


def join_world() -> World:
    """The world that `torchrun` has started this process in; without it, a world of one.

    Raises:
        TrainingError: the other processes can't be reached.
    """
    return World() if process_count() == 1 else Processes.joined()


def launch_name() -> str | None:
    """A name of the launch, which its restarts keep and no other launch has; None without `torchrun`.

    Several launches may have the same `--rdzv-id`, or none: the name also has the machine of `torchrun`, its
    process and the start of it.
    """
    run_id = os.environ.get("TORCHELASTIC_RUN_ID")
    if run_id is None:
        return None
    agent = os.getppid()
    return f"{run_id} {platform.node()} {agent} {_start(agent)}".rstrip()


def _start(pid: int) -> str:
    """When a process was started, in ticks since the start of the system; empty where it is not known."""
    try:
        # The second field, the name of the program, is in brackets and may have spaces.
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return ""
