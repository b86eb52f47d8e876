"""The processes of one training, usually one alone; several are started by `torchrun`."""

import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from types import FrameType
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn

from turret.training.errors import TrainingError
from turret.training.objectives.contract import Objective, StepLoss

# A process that waits longer than this for the others has lost one of them.
TIMEOUT = timedelta(minutes=10)
_OF_EXCHANGE = ("gloo", "nccl", "connection", "timed out", "broken pipe", "process group")


class World:
    """The processes of one training. One process alone exchanges nothing: methods return their argument.

    Attributes:
        rank: the number of this process, from 0; process 0 writes the files.
        size: the number of processes.
        group: the process group of all exchanges; None for one process alone.
        sent: the bytes that this process has sent by kind, as the shortest known algorithms send them.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.rank, self.size = (0, 1) if group is None else (dist.get_rank(), dist.get_world_size())
        self.group = group
        self.sent: Counter[str] = Counter()

    @property
    def leads(self) -> bool:
        """Whether this process writes files and reports."""
        return self.rank == 0

    def sums(self, values: Sequence[float]) -> list[float]:
        """The sum over all processes of each of `values`, in float64."""
        return self.summing(values)()

    def summing(self, values: Sequence[float]) -> Callable[[], list[float]]:
        """Begin `sums` now, and return a function that waits for them."""
        total = torch.tensor(list(values), dtype=torch.float64)
        if self.group is None:
            return total.tolist
        work = dist.all_reduce(total, group=self.group, async_op=True)
        self.count("figures", total.nbytes, 2)

        def summed() -> list[float]:
            work.wait()
            sums: list[float] = total.tolist()
            return sums

        return summed

    def add_up(self, gradients: Sequence[Tensor]) -> None:
        """Replace each gradient, dense or sparse, by its sum over all processes."""
        works = [dist.all_reduce(gradient, group=self.group, async_op=True) for gradient in gradients]
        for work, gradient in zip(works, gradients, strict=True):
            work.wait()
            if gradient.is_sparse:  # gloo gathers the rows of all processes
                self.count("table rows", gradient._values().nbytes)
            else:
                self.count("gradients", gradient.nbytes, 2)

    def share(self, module: nn.Module) -> None:
        """Give all processes the parameters and buffers of process 0."""
        if self.group is not None:
            for tensor in (*module.parameters(), *module.buffers()):
                dist.broadcast(tensor.detach(), 0, group=self.group)

    def row_counts(self, count: int) -> list[int]:
        """The `count` of each process."""
        if self.group is None:
            return [count]
        counts = torch.zeros(self.size, dtype=torch.int64)
        dist.all_gather_single(counts, torch.tensor([count]), group=self.group)
        self.count("figures", counts.nbytes)
        return [int(value) for value in counts]

    def gathered(self, rows: Tensor, counts: list[int] | None = None) -> Tensor:
        """`rows` [R, ...] of all processes in the order of their ranks; `counts` has each R, if known."""
        if self.group is None:
            return rows
        counts = self.row_counts(len(rows)) if counts is None else counts
        padded = rows.new_zeros(max(counts), *rows.shape[1:])
        padded[: len(rows)] = rows.detach()
        parts = rows.new_empty(self.size * len(padded), *rows.shape[1:])
        dist.all_gather_single(parts, padded, group=self.group)
        self.count("candidates", parts.nbytes)
        each = parts.view(self.size, *padded.shape)
        return torch.cat([part[:size] for part, size in zip(each, counts, strict=True)])

    def gathered_vectors(self, rows: Tensor, counts: list[int]) -> Tensor:
        """Like `gathered`; gradients are summed in the process that the rows came from."""
        result: Tensor = _Gathered.apply(rows, self, counts)  # type: ignore[no-untyped-call]
        return result

    def scattered(self, rows: Tensor, counts: list[int]) -> Tensor:
        """The sum over all processes of their `rows` for this one: the transpose of `gathered`."""
        padded = rows.new_zeros(self.size, max(counts), *rows.shape[1:])
        for part, block in zip(padded, torch.split(rows, counts), strict=True):
            part[: len(block)] = block
        summed = rows.new_empty(padded.shape[1:])
        dist.reduce_scatter_single(summed, padded.flatten(0, 1), group=self.group)
        self.count("candidates", padded.nbytes)
        return summed[: counts[self.rank]]

    def agreed(self, value: bool) -> bool:
        """The value of process 0."""
        if self.group is None:
            return value
        decided = torch.tensor([value])
        dist.broadcast(decided, 0, group=self.group)
        return bool(decided)

    def wait(self) -> None:
        """Wait until every process is here."""
        if self.group is not None:
            dist.barrier(group=self.group)

    def count(self, kind: str, size: int, times: int = 1) -> None:
        """Count `times` exchanges of `size` bytes in all, of which a process sends all but its own share."""
        self.sent[kind] += times * size * (self.size - 1) // self.size

    def close(self) -> None:
        """Leave the process group, also if other processes have ended."""
        if self.group is not None:
            with suppress(RuntimeError):
                dist.destroy_process_group()

    @contextmanager
    def naming_losses(self, remedy: str) -> Iterator[None]:
        """Turn the failure of an exchange, because another process has ended, into a TrainingError.

        SIGTERM becomes one too: torchrun sends it to the others as soon as one has ended, often before they
        notice.
        """
        if self.group is None:
            yield
            return

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
            is_named = isinstance(error, RuntimeError) and any(
                word in str(error).lower() for word in _OF_EXCHANGE
            )
            if not is_named and not isinstance(error, dist.DistError):
                raise
            raise TrainingError(
                f"process {self.rank} of {self.size} has lost another one ({_first_line(error)}), so the "
                f"training ends; {remedy}"
            ) from None


WORLD = ContextVar("WORLD", default=World())  # noqa: B039 # a process alone sends nothing
"""The processes of this training: a process is alone, except within `joined`."""


@contextmanager
def joined(world: World) -> Iterator[World]:
    """Train with the processes of `world` within the block."""
    token = WORLD.set(world)
    try:
        yield world
    finally:
        WORLD.reset(token)


class _Gathered(torch.autograd.Function):
    """Gradients flow back to the process that a row came from."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, world: World, counts: list[int]) -> Tensor:
        ctx.world, ctx.counts = world, counts
        return world.gathered(rows, counts)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.world.scattered(slopes[0], ctx.counts), None, None


def process_count() -> int:
    """The number of processes that `torchrun` has started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def join_world() -> World:
    """Meet the other processes that `torchrun` has started, with the GPU of the local rank if there is one.

    Raises:
        TrainingError: they can't be reached within `TIMEOUT`, or the machine has fewer GPUs than processes.
    """
    if process_count() == 1:
        return World()
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
        dist.init_process_group(backend, timeout=TIMEOUT)
        return World(dist.group.WORLD)
    except (RuntimeError, ValueError) as error:
        raise TrainingError(
            f"the other processes of this training can't be reached ({_first_line(error)}); start all of "
            "them with torchrun, with the same --nnodes, --rdzv-endpoint and --rdzv-id."
        ) from None


def _first_line(error: BaseException) -> str:
    """The first sentence of an error, without the source file that gloo begins it with."""
    line = re.sub(r"^\[[^]]*\.(cc|cpp|h):\d+\] ", "", str(error).strip().partition("\n")[0])
    return line.partition(". ")[0][:200]


def backward(
    world: World, out: StepLoss, examples: int, parameters: Sequence[nn.Parameter]
) -> tuple[float, int, int]:
    """Compute the gradients of the batch of all processes; return its loss, examples and masked candidates.

    Each process has the mean over its own examples: the means times their weights are summed, and divided by
    the weight of all. For a table with sparse gradients, which is updated by row, the rows of the batch alone
    are sent.
    """
    assert out.weight is not None, "an objective that merges has a weight"
    weight, masked = float(out.weight), int(out.masked) if examples else 0
    figures = world.summing([float(out.loss.detach()) * weight, weight, examples, masked])
    torch.autograd.backward(out.loss * weight)
    dense = [tensor for tensor in parameters if tensor.grad is None or not tensor.grad.is_sparse]
    gradients = [tensor.grad for tensor in parameters if tensor.grad is not None and tensor.grad.is_sparse]
    if dense:  # one exchange sends all
        slopes = (torch.zeros_like(tensor) if tensor.grad is None else tensor.grad for tensor in dense)
        together = torch.cat([gradient.flatten() for gradient in slopes])
        for tensor, part in zip(
            dense, torch.split(together, [tensor.numel() for tensor in dense]), strict=True
        ):
            tensor.grad = part.view_as(tensor)
        gradients.append(together)
    world.add_up(gradients)
    loss, total, count, masked_by_all = figures()
    for gradient in gradients:
        gradient.div_(total or 1.0)
    return loss / (total or 1.0), int(count), int(masked_by_all)


def check_parts(objective: Objective, size: int) -> None:
    """Raise TrainingError where the parts of `size` processes don't make one training.

    The parts don't for a loss that is no mean over single examples, and for a sampler that learns from its
    examples.
    """
    if not objective.merges:
        raise TrainingError(
            f"objective.loss: the loss of {type(objective).__name__} is no mean over single examples, so "
            f"{size} processes can't put it together from parts; train it in one process, or choose another "
            "loss, such as 'sampled_softmax' or 'full_softmax'."
        )
    if objective.sampler is not None and not objective.sampler.merges:
        raise TrainingError(
            f"objective.sampler: {type(objective.sampler).__name__} learns from the examples that it sees, "
            f"and each of {size} processes would see others; train it in one process, or choose another "
            "sampler, such as 'uniform' or 'in_batch'."
        )
