"""Functions of tensors in few passes: dropout, normalisation, and rows of a matrix."""

from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn.functional import embedding

from turret.tower.kernels.compiled import compiled, in_parts

# The odd number next to 2^64 over the golden ratio: the counter's step (Steele, Lea & Flood 2014).
STEP = np.uint64(0x9E3779B97F4A7C15)


@compiled
def mixed(counter: np.uint64) -> np.uint64:
    """The finaliser of SplitMix64 (Steele, Lea & Flood 2014): 64 random bits of a counter."""
    bits = (counter ^ (counter >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@compiled
def uniform(counter: np.uint64) -> float:
    """A number from [0, 1) with 53 random bits."""
    return np.float64(mixed(counter) >> np.uint64(11)) * 1.1102230246251565e-16


@compiled
def stream_of(seed: np.uint64, number: int) -> np.uint64:
    """The first counter of stream `number`, far from every other's."""
    return mixed(seed + mixed(np.uint64(number) * STEP))


# Fewer words (of eight values) do not pay for waking a second thread.
LEAST_WORDS = 65536
# This many words are drawn at a time.
WORDS = 64
# Vectors are divided by at least this norm, as in torch.
SHORTEST = 1e-12


@compiled
def drop(
    values: NDArray[np.float32],
    dropped: int,
    scale: np.float32,
    seed: np.uint64,
    outputs: NDArray[np.float32],
    start: int,
    stop: int,
) -> None:
    """Fill the words of eight values from `start` to `stop`: zero where a random byte is below `dropped`."""
    words = np.empty(WORDS, np.uint64)
    draws, least = words.view(np.uint8), np.uint8(dropped)
    for first in range(start, stop, WORDS):
        for i in range(min(WORDS, stop - first)):
            words[i] = mixed(seed + np.uint64(first + i) * STEP)
        # Views tell the compiler that positions are not negative, so that it uses vector registers.
        inputs, filled = values[8 * first : 8 * (first + WORDS)], outputs[8 * first : 8 * (first + WORDS)]
        for i in range(min(len(inputs), 8 * (stop - first))):
            filled[i] = inputs[i] * scale if draws[i] >= least else np.float32(0)


def _dropped(values: Tensor, dropped: int, seed: int) -> Tensor:
    inputs, outputs = values.contiguous(), torch.empty_like(values, memory_format=torch.contiguous_format)
    flat = (
        inputs.view(-1).numpy(),
        dropped,
        np.float32(256 / (256 - dropped)),
        np.uint64(seed),
        outputs.view(-1).numpy(),
    )
    in_parts(-(-inputs.numel() // 8), partial(drop, *flat), least=LEAST_WORDS)
    return outputs


class _Drop(torch.autograd.Function):
    """Values [...], zero where a random byte says so; the gradient uses the same bytes."""

    @staticmethod
    def forward(ctx: FunctionCtx, values: Tensor, dropped: int) -> Tensor:
        """Drop values by a seed from torch's generator, so that seeding the generator reproduces them."""
        seed = int(torch.randint(0, 2**63 - 1, ()))
        ctx.dropped, ctx.seed = dropped, seed  # type: ignore[attr-defined] # autograd's way to keep numbers
        return _dropped(values.detach(), dropped, seed)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:
        """The gradient of the values, with the same bytes drawn again from the seed."""
        return _dropped(slopes[0], ctx.dropped, ctx.seed), None


class Dropout(nn.Module):
    """Zeroes each value with probability `rate`, and scales up the others so that means stay.

    On the CPU `rate` is rounded to a 256th: a random byte decides on each value. Forward and backward take
    42 us of one thread for [1024, 64]; torch's dropout, which draws its mask serially, takes 400 us, of a
    training step of 1.8 ms.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, values: Tensor) -> Tensor:
        """The values [...], in training with some dropped: [...]."""
        if not self.training or not self.rate:
            return values
        if values.device.type != "cpu" or values.dtype != torch.float32:
            return nn.functional.dropout(values, self.rate)
        dropped = min(max(round(256 * self.rate), 1), 255)
        result: Tensor = _Drop.apply(values, dropped)  # type: ignore[no-untyped-call] # torch annotates neither
        return result


class Normalize(torch.autograd.Function):
    """Vectors [..., D] over their norms, zero vectors unchanged.

    The few passes take 66 us for [1024, 64] where torch takes 127.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, vectors: Tensor) -> Tensor:
        """Return the unit vectors; save them and the norms for the gradient."""
        lengths = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True).clamp_(min=SHORTEST)
        units: Tensor = vectors / lengths
        ctx.save_for_backward(units, lengths)
        return units

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        """The radial component of the gradient is zero."""
        units, lengths = ctx.saved_tensors
        along = torch.linalg.vecdot(slopes[0], units).unsqueeze(-1)
        gradient: Tensor = torch.addcmul(slopes[0], units, along, value=-1.0).div_(lengths)
        return gradient


def gather_rows(matrix: Tensor, rows: Tensor) -> Tensor:
    """`matrix[rows]` for a matrix [R, D] and rows [...]: [..., D].

    The gradient of indexing sums repeated rows in the order of threads; the gradient of an embedding look-up
    sums them in their own order, and faster.
    """
    return embedding(rows, matrix)
