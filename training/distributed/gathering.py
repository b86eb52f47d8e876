"""Exchanges between processes through which gradients flow back."""

from typing import Any, Protocol

import torch
from torch import Tensor


class Exchanges(Protocol):
    """Exchanges of rows [R, ...]; `counts` has the R of each process."""

    def gathered(self, rows: Tensor, counts: list[int]) -> Tensor:
        """The rows of all processes, in the order of their ranks."""
        ...

    def scattered(self, rows: Tensor, counts: list[int]) -> Tensor:
        """The sum over all processes of their `rows` for this one: the transpose of `gathered`."""
        ...

    def exchanged(self, rows: Tensor, to: list[int], of: list[int]) -> Tensor:
        """Send `rows`, of which process r gets `to[r]`; returns the `of[r]` rows that each r sends."""
        ...


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, world: Exchanges, counts: list[int]) -> Tensor:
        ctx.world, ctx.counts = world, counts
        return world.gathered(rows, counts)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.world.scattered(slopes[0], ctx.counts), None, None


def gathered_vectors(rows: Tensor, world: Exchanges, counts: list[int]) -> Tensor:
    """The gathered `rows`, whose gradients are summed where the rows came from."""
    result: Tensor = _Gathered.apply(rows, world, counts)  # type: ignore[no-untyped-call]
    return result


class _Exchanged(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, world: Exchanges, to: list[int], of: list[int]) -> Tensor:
        ctx.world, ctx.to, ctx.of = world, to, of
        return world.exchanged(rows, to, of)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.world.exchanged(slopes[0], ctx.of, ctx.to), None, None, None


def exchanged_vectors(rows: Tensor, world: Exchanges, to: list[int], of: list[int]) -> Tensor:
    """The exchanged `rows`, whose gradients take the way back."""
    result: Tensor = _Exchanged.apply(rows, world, to, of)  # type: ignore[no-untyped-call]
    return result
