"""Random streams determined by seed, purpose and step, so that a resumed run repeats them."""

import zlib

import numpy as np
import torch


def stream(seed: int, purpose: str, step: int) -> np.random.Generator:
    """The generator of one purpose at one step, independent of all others and without stored state."""
    return np.random.default_rng([seed, zlib.crc32(purpose.encode()), step])


def purpose_of_process(purpose: str, rank: int) -> str:
    """The purpose of a stream that differs between processes; process 0 has that of a process alone."""
    return purpose if rank == 0 else f"{purpose} of process {rank}"


def seed_torch(seed: int, purpose: str, step: int) -> None:
    """Seed torch's global generator, which dropout and initialisation draw from."""
    torch.manual_seed(int(stream(seed, purpose, step).integers(2**63)))
