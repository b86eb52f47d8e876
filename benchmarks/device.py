"""Training on a device: `python -m benchmarks.device --device cuda --json`, for five minutes.

Each row trains the same towers as `benchmarks.training_speed` on MovieLens 1M, or towers over a generated log
of a million items, for a fixed time: examples a second with the making of batches, the most memory, and the
share of the device's peak. The peak is that of products of square matrices in bfloat16; torch counts the
products and the attention of a step, forward and backward, and all else counts as nothing. `--device cpu`
shows the same figures of this machine's processor, in float32, and in minutes.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.harness import Options, machine, peak_memory_mb, run
from benchmarks.processes import alone
from benchmarks.scale_training import Shape, log_of
from benchmarks.training_sides import POOLED_CHANGES, endless, steps_of, trainer_of, transformer_changes
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.training.batches.batches import prefetched

SECONDS, QUICK_SECONDS = 20.0, 0.5
ITEMS, QUICK_ITEMS, EVENTS = 1_000_000, 10_000, 2_000_000
SIDES = {"cuda": 8_192, "cpu": 1_024}
KERNEL = 'objective={loss="sampled_softmax", sampler={kind="quadratic", negatives=64}}'
FULL = 'objective={loss="full_softmax"}'
# The experiment of each row, its settings, and whether it trains on the generated log.
ROWS: dict[str, tuple[str, tuple[str, ...], bool]] = {
    "pooled, 20 candidates": ("youtubednn", POOLED_CHANGES, False),
    "transformer, 256 candidates": ("transformer", transformer_changes(sampled=True), False),
    "transformer, full softmax": ("transformer", transformer_changes(sampled=False), False),
    "transformer, 256 candidates, many items": ("transformer", transformer_changes(sampled=True), True),
    "pooled, quadratic kernel, many items": ("youtubednn", (KERNEL,), True),
    "pooled, full softmax, many items": ("youtubednn", (FULL, "training.batch_size=256"), True),
}


def finished(device: str) -> None:
    """Wait for the work that the device was given."""
    if device == "cuda":
        torch.cuda.synchronize()


def peak(device: str) -> float:
    """Operations a second, two for a multiplication, of square matrices."""
    side, dtype = SIDES[device], torch.bfloat16 if device == "cuda" else torch.float32
    left, right = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    rates = []
    for _ in range(20):
        finished(device)
        begun = time.perf_counter()
        torch.mm(left, right)
        finished(device)
        rates.append(2 * side**3 / (time.perf_counter() - begun))
    return max(rates)


def measured(name: str, prepared: Path, work: Path, device: str, seconds: float) -> dict[str, Any]:
    """The figures of one row."""
    experiment, changes, _ = ROWS[name]
    data = PreparedData.open(prepared)
    trainer = trainer_of(data, work / "run", experiment, changes, device)
    sampler = trainer.objective.sampler
    if sampler and sampler.holds_vectors:
        sampler.refresh(trainer.model.current_vectors(torch.arange(len(data.item_ids), device=device)))
    batches = endless(trainer) if device == "cpu" else prefetched(endless(trainer), trainer.device)
    take_steps = steps_of(trainer, batches)
    take_steps(2)  # to warm up
    with FlopCounterMode(display=False) as counter:
        counted, _ = take_steps(1)
    examples, steps, begun = 0, 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        examples, steps = examples + take_steps(1)[0], steps + 1
    finished(device)
    spent = time.perf_counter() - begun
    operations = counter.get_total_flops() / counted * examples / spent
    memory = torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else peak_memory_mb()
    return {
        "row": name,
        "examples_per_second": examples / spent,
        "step_ms": 1e3 * spent / steps,
        "memory_mb": memory,
        "share_of_peak": operations / peak(device),
    }


def rows(options: Options, device: str) -> Iterator[dict[str, Any]]:
    """Measure each row in a process of its own, so that its memory is its own."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        prepare(PrepareConfig(source=options.data / "sasrec_ml-1m" / "interactions.parquet"), work / "films")
        items = QUICK_ITEMS if options.quick else ITEMS
        many = log_of(Shape(items, 64, 50), work / "many", 10 * items if options.quick else EVENTS)
        seconds = QUICK_SECONDS if options.quick else SECONDS
        for number, (name, (_, _, is_many)) in enumerate(ROWS.items()):
            prepared = many if is_many else work / "films"
            yield alone(measured, name, prepared, work / str(number), device, seconds)


def measure(options: Options) -> dict[str, Any]:
    """All rows, and the device."""
    device = options.given.device
    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("--device cuda: this machine has no CUDA device; use --device cpu.")
    name = torch.cuda.get_device_name() if device == "cuda" else machine()["processor"]
    return {"device": device, "name": name, "peak": peak(device), "rows": [*rows(options, device)]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--device", choices=[*SIDES], default="cuda", help="what trains (cuda)")
    run(measure, more=parser)
