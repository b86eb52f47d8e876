"""The device of a run and the type of its matrix products."""

import torch

from turret.training.errors import TrainingError


def pick_device(name: str) -> torch.device:
    """The device of the setting `training.device`: `auto` prefers CUDA.

    Raises:
        TrainingError: CUDA is requested and not available.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise TrainingError("training.device = 'cuda': this machine has no CUDA device; use 'auto' or 'cpu'.")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def matmul_dtype(device: torch.device, precision: str) -> torch.dtype | None:
    """The type of products: bfloat16 where the device multiplies it, 4 to 8 times as fast; None: float32."""
    if precision == "auto":
        return torch.bfloat16 if device.type == "cuda" or _cpu_has_bfloat16() else None
    return torch.bfloat16 if precision == "bfloat16" else None


def _cpu_has_bfloat16() -> bool:
    """Whether the CPU has instructions for bfloat16 products; without them torch is slower in it."""
    known = torch.cpu.get_capabilities()
    return any(known.get(name, False) for name in ("amx_bf16", "avx512_bf16"))
