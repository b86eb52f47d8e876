"""SASRec of RecTools' `fast_transformers`: its sequences, its network and its data set, in a plain loop.

The package has no trainer for `FlatSASRecNet`; a loop of torch costs less than Lightning, which trains its
other network. The feed-forward layers of its blocks are four times as wide as the vectors. A position counts
as an example where it has a target; those that fill up short histories do not.
"""

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from rectools.fast_transformers import FlatSASRecNet, SequenceBatchDataset, build_sequences
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

PADDING = 0
NETWORK = ("n_factors", "n_blocks", "n_heads", "session_max_len", "dropout_rate")


def prepare(data: str, settings: dict[str, Any]) -> Callable[[int], dict[str, Any]]:
    """Settings: threads, precision, and in `model` those of `contestants.sasrec`; a step is a batch."""
    torch.set_num_threads(settings["threads"])
    model = settings["model"]
    inputs, targets, items = _sequences(dict(np.load(data)), model["session_max_len"])
    net = FlatSASRecNet(
        items,
        *(model[name] for name in ("n_factors", "n_blocks", "n_heads", "session_max_len", "dropout_rate")),
    )
    optimiser = torch.optim.Adam(net.parameters(), lr=model["lr"], fused=True)
    loader = DataLoader(SequenceBatchDataset(inputs, targets), batch_size=model["batch_size"], shuffle=True)
    batches = _endless(loader)
    is_sampled, is_mixed = model["loss"] == "sampled_softmax", settings["precision"] == "bf16-mixed"

    def step(batch: dict[str, torch.Tensor]) -> int:
        wanted = batch["y"]
        if is_sampled:
            batch["negatives"] = torch.randint(1, items + 1, (*wanted.shape, model["n_negatives"]))
        with torch.autocast("cpu", torch.bfloat16, enabled=is_mixed):
            logits = net(batch).flatten(0, 1)
        real = (wanted != PADDING).flatten()
        # The positive is the first of the candidates; without candidates, items count from 1.
        classes = torch.where(real, 0 if is_sampled else wanted.flatten() - 1, -100)
        loss = cross_entropy(logits, classes)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        return int(real.sum())

    def run(steps: int) -> dict[str, Any]:
        start = time.perf_counter()
        examples = sum(map(step, islice(batches, steps)))
        return {"examples": examples, "seconds": time.perf_counter() - start}

    return run


def _endless(loader: Any) -> Iterator[dict[str, torch.Tensor]]:
    while True:
        yield from loader


def _sequences(events: dict[str, Any], length: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    """The training events as inputs [U, T], targets [U, T] and the number of items."""
    begins, ends = events["offsets"][:-1], events["train_ends"]
    users = np.repeat(np.arange(len(ends)), ends - begins)
    places = np.concatenate([np.arange(begin, end) for begin, end in zip(begins, ends, strict=True)])
    items = events["items"][places].astype(np.int64)
    columns = (torch.from_numpy(column) for column in (users, items, places))
    inputs, targets, known, _ = build_sequences(*columns, max_len=length)
    return inputs, targets, len(known)
