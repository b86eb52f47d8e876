"""The processes that train one run together, usually one alone."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from turret.training.randomness import purpose_of_process


class World:
    """A world of one process: nothing is exchanged, and every method returns what it is given.

    Attributes:
        rank: the number of this process, from 0; process 0 writes the files.
        size: the number of processes.
    """

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes files and reports."""
        return self.rank == 0

    def purpose(self, name: str) -> str:
        """The name of a random stream that differs between processes."""
        return purpose_of_process(name, self.rank)

    def sums(self, values: Sequence[float]) -> list[float]:
        """The sum over all processes of each of `values`, in float64."""
        return list(values)

    def row_counts(self, count: int) -> list[int]:
        """The `count` of each process."""
        return [count]

    def gathered(self, rows: Tensor, counts: list[int] | None = None) -> Tensor:
        """`rows` [R, ...] of all processes in the order of their ranks; `counts` has each R, if known."""
        return rows

    def gathered_vectors(self, rows: Tensor, counts: list[int]) -> Tensor:
        """As `gathered`; gradients are summed in the process that the rows came from."""
        return rows

    def agreed(self, value: bool) -> bool:
        """The value of process 0."""
        return value

    def wait(self) -> None:
        """Wait until every process is here."""

    @contextmanager
    def naming_losses(self, remedy: str) -> Iterator[None]:
        """Turn the failure of an exchange, because another process has ended, into a TrainingError."""
        yield

    def close(self) -> None:
        """Leave the other processes."""


ALONE = World()


def process_count() -> int:
    """The number of processes that `torchrun` has started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))
