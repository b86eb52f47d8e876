"""Random streams determined by seed, purpose and step, so that a resumed run repeats them."""

import zlib

import numpy as np
import torch


def stream(seed: int, purpose: str, step: int, rank: int = 0) -> np.random.Generator:
    """The generator of one purpose at one step, independent of all others and without stored state.

    Processes have streams of their own by their `rank`; process 0 has that of a process alone.
    """
    name = f"{purpose} of process {rank}" if rank else purpose
    return np.random.default_rng([seed, zlib.crc32(name.encode()), step])


def seed_torch(seed: int, purpose: str, step: int, rank: int = 0) -> None:
    """Seed torch's global generators, which dropout and initialisation draw from."""
    value = int(stream(seed, purpose, step, rank).integers(2**63))
    # `torch.manual_seed` formats the stack for each kind of device that isn't used, 3 % of a pooled step.
    for generator in (torch.default_generator, *torch.cuda.default_generators):
        generator.manual_seed(value)
