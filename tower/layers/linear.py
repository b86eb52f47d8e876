"""Linear layers whose products may be computed in fewer bits while training."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from turret.tower.kernels.bucket_rows import pad_rows
from turret.tower.kernels.elementwise import Dropout


class _ShortProducts(torch.autograd.Function):
    """x W^T + b of x [B, I], W [O, I] and b [O]: it and both products of its gradient in another type."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, inputs: Tensor, weight: Tensor, bias: Tensor | None, products: torch.dtype
    ) -> Tensor:
        """The tensors saved for the gradient are short, too."""
        short_inputs, short_weight = pad_rows(inputs, products), weight.to(products)
        ctx.save_for_backward(short_inputs, short_weight)
        outputs = torch.mm(short_inputs, short_weight.T)[: len(inputs)].to(inputs.dtype)
        return outputs if bias is None else outputs.add_(bias)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        """All gradients in the type of the slopes."""
        inputs, weight = ctx.saved_tensors
        slope, short = slopes[0], pad_rows(slopes[0], inputs.dtype)
        to_inputs, _, to_bias, _ = ctx.needs_input_grad
        return (
            torch.mm(short, weight)[: len(slope)].to(slope.dtype) if to_inputs else None,
            torch.mm(short.T, inputs).to(slope.dtype),
            slope.sum(dim=0) if to_bias else None,
            None,
        )


class Linear(nn.Linear):
    """`nn.Linear` that can train with products in bfloat16; inputs, outputs and weights stay in float32.

    torch's autocast would pass bfloat16 on to the next layers. On a processor that is only fast at products
    of that type this makes attention, dropout and sums slower.

    Attributes:
        products: the type of products while training; None for that of the inputs.
    """

    products: torch.dtype | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        """[..., I] to [..., O]."""
        if self.products is None or not self.training:
            return super().forward(inputs)
        flat = inputs.reshape(-1, self.in_features)
        result: Tensor = _ShortProducts.apply(flat, self.weight, self.bias, self.products)  # type: ignore[no-untyped-call]
        return result.view(*inputs.shape[:-1], self.out_features)


def set_matmul_dtype(module: nn.Module, products: torch.dtype | None) -> None:
    """Set the type of products of all linear layers of `module` while training."""
    for part in module.modules():
        if isinstance(part, Linear):
            part.products = products


def perceptron(inputs: int, hidden: Sequence[int], outputs: int, dropout: float) -> nn.Sequential:
    """A ReLU network from width `inputs` over the `hidden` widths to `outputs`; its last layer is linear."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [Linear(inputs, width), nn.ReLU(), Dropout(dropout)]
        inputs = width
    return nn.Sequential(*layers, Linear(inputs, outputs))
