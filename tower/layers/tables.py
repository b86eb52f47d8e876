"""Tables of one trained row for each id or code."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import nn


class Table(nn.Embedding):
    """A table [R, D]."""

    weight: nn.Parameter

    @classmethod
    def without_rows(cls, rows: int, width: int, padding: int | None) -> "Table":
        """A table whose rows are loaded later, without memory for others before."""
        return cls(rows, width, padding, device="meta")

    @torch.no_grad()
    def begin(self, deviation: float) -> None:
        """Draw all rows from a normal distribution; the padding row is zero."""
        nn.init.normal_(self.weight, std=deviation)
        if self.padding_idx is not None:
            self.weight[self.padding_idx] = 0.0


Maker = Callable[[int, int, int | None], Table]
_MAKER: ContextVar[Maker] = ContextVar("maker of tables", default=Table)


def new_table(rows: int, width: int, padding: int | None = None) -> Table:
    """A table [rows, width]; the row `padding`, if any, is not trained."""
    return _MAKER.get()(rows, width, padding)


@contextmanager
def tables_by(maker: Maker) -> Iterator[None]:
    """Let `maker` make the tables of the towers that the block builds."""
    token = _MAKER.set(maker)
    try:
        yield
    finally:
        _MAKER.reset(token)
