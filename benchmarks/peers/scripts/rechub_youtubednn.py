"""YoutubeDNN of torch-rechub: its features, model and trainer, on its dataset of arrays.

Its own `MatchDataGenerator` collates example by example; the same dataset answers a list of rows at once,
where torch's loader is given whole batches of rows, and that is faster: so it is used that way here.
"""

import tempfile
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler
from torch_rechub.basic.features import SequenceFeature, SparseFeature
from torch_rechub.models.matching import YoutubeDNN
from torch_rechub.trainers import MatchTrainer
from torch_rechub.utils.data import TorchDataset
from torch_rechub.utils.match import negative_sample


def prepare(data: str, settings: dict[str, Any]) -> Callable[[int], dict[str, Any]]:
    """Settings: threads, batch_size, dimension, hidden (widths), negatives (of each example)."""
    torch.set_num_threads(settings["threads"])
    arrays = dict(np.load(data))
    # Row 0 is the padding.
    columns = {"history": arrays["histories"] + 1, "item": arrays["targets"] + 1}
    columns["negatives"] = _negatives(columns["item"], settings["negatives"])
    tensors = {name: torch.from_numpy(column.astype(np.int64)) for name, column in columns.items()}
    trainer = _trainer(int(arrays["item_count"]) + 1, settings)
    order = np.random.default_rng(0)

    def run(steps: int) -> dict[str, Any]:
        size = settings["batch_size"]
        rows = torch.from_numpy(order.permutation(len(columns["item"]))[: steps * size])
        dataset = TorchDataset(
            {name: tensor[rows] for name, tensor in tensors.items()}, torch.zeros(len(rows))
        )
        batches = BatchSampler(RandomSampler(dataset), size, drop_last=False)
        loader = DataLoader(dataset, batch_size=None, sampler=batches)
        start = time.perf_counter()
        trainer.fit(loader)
        return {"examples": len(rows), "seconds": time.perf_counter() - start}

    return run


def _negatives(items: Any, count: int) -> Any:
    """Drawn uniformly and once, before training, as `generate_seq_feature_match` of the library does."""
    by_count = OrderedDict(Counter(items.tolist()).most_common())
    return np.asarray(negative_sample(by_count, len(items) * count, method_id=0)).reshape(len(items), count)


def _trainer(rows: int, settings: dict[str, Any]) -> Any:
    width = settings["dimension"]
    history = SequenceFeature("history", rows, width, pooling="mean", shared_with="item", padding_idx=0)
    item = SparseFeature("item", rows, width)
    negatives = SequenceFeature("negatives", rows, width, pooling="concat", shared_with="item")
    dims = [*settings["hidden"], width]
    model = YoutubeDNN([history], [item], [negatives], {"dims": dims}, temperature=0.07)
    # It saves the model at the end of each fit.
    return MatchTrainer(model, mode=2, n_epoch=1, device="cpu", model_path=tempfile.mkdtemp())
