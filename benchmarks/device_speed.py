"""How fast Turret trains on a device, and what share of its bfloat16 peak that is.

The peak is measured: the product of two large square matrices in bfloat16. What a step computes is counted
by torch, forward and backward: matrix products and attention. Everything else a step does, such as gathering
rows, moving tables and drawing candidates, counts as nothing, which is what the share is to show.
"""

import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import turret_training
from benchmarks.harness import Side
from benchmarks.turret_training import Device, finish_work
from turret.data.prepared import PreparedData

TOWERS = {
    "pooled tower, 20 candidates": turret_training.pooled,
    "transformer, 256 candidates": turret_training.transformer_sampled,
    "transformer, full softmax": turret_training.transformer_full,
}
WIDTH, PRODUCTS, STEPS = 8192, 20, 50


def cuda_speed(data: PreparedData, work: Path) -> dict[str, Any] | None:
    """`device_speed` of the CUDA device; None, with a word about it, where there is none."""
    if not torch.cuda.is_available():
        print("This machine has no CUDA device: training on one is skipped.")
        return None
    return {"name": torch.cuda.get_device_name(), **device_speed(data, work, "cuda")}


def device_speed(
    data: PreparedData, work: Path, device: Device, width: int = WIDTH, steps: int = STEPS
) -> dict[str, Any]:
    """Examples/s of each tower on the device, and the share of its `peak_flops`, in operations a second."""
    peak = peak_flops(torch.device(device), width)
    towers = {}
    for name, side in TOWERS.items():
        run = side(data, work / device, device)
        needed = flops_an_example(run)
        run(steps)
        examples, seconds = run(steps)
        rate = examples / seconds
        towers[name] = {"examples_per_second": rate, "share_of_peak": rate * needed / peak}
    return {"peak_flops": peak, "towers": towers}


def peak_flops(device: torch.device, width: int) -> float:
    """Operations a second of bfloat16 products [width, width]."""
    left, right = (torch.randn(width, width, device=device, dtype=torch.bfloat16) for _ in range(2))
    torch.mm(left, right)
    finish_work(device)
    start = time.perf_counter()
    for _ in range(PRODUCTS):
        torch.mm(left, right)
    finish_work(device)
    return 2 * width**3 * PRODUCTS / (time.perf_counter() - start)


def flops_an_example(run: Side) -> float:
    """What one step computes in matrix products and attention, by its examples."""
    with FlopCounterMode(display=False) as counter:
        examples, _ = run(1)
    return float(counter.get_total_flops() / examples)
