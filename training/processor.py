"""What the processor can do."""

import torch


def multiplies_bfloat16() -> bool:
    """Whether the CPU has instructions for products of bfloat16; without them torch is slower in it."""
    has_amx: bool = torch.cpu._is_amx_tile_supported()
    has_avx: bool = torch.cpu._is_avx512_bf16_supported()
    return has_amx or has_avx
