"""The sides of `benchmarks.training_speed`: the towers under our trainer, and a transformer in bare torch.

The bare transformer has the sizes of the experiment `transformer`; segments of exactly T + 1 items lie ready
in memory, so that it pads, gathers and draws no histories. The difference is the trainer's overhead.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, normalize, scaled_dot_product_attention, silu

from benchmarks.harness import Side
from benchmarks.peers.contestants import HIDDEN, HISTORY_LENGTH, NEGATIVES, SAMPLED, SESSION_LENGTH
from turret.data.prepared import PreparedData
from turret.training.batches.batches import Batch
from turret.training.config.experiment import load_experiment
from turret.training.loop.trainer import Trainer
from turret.training.randomness import stream
from turret.training.run import Run

# The pooled tower as the peers have it, with 20 uniform candidates a step of 8,192 examples.
POOLED_CHANGES = (
    f"tower.user.history_length={HISTORY_LENGTH}",
    f"tower.user.hidden={HIDDEN}",
    "tower.user.last_item=false",
    "tower.user.dropout=0.0",
    "training.batch_size=8192",
    f'objective={{loss="sampled_softmax", sampler={{kind="uniform", negatives={NEGATIVES}}}}}',
)


def transformer_changes(sampled: bool) -> tuple[str, str]:
    """The settings of the transformer with 256 uniform candidates a step, or with the full softmax."""
    objective = 'objective={loss="full_softmax"}'
    if sampled:
        objective = f'objective={{loss="sampled_softmax", sampler={{kind="uniform", negatives={SAMPLED}}}}}'
    return f"tower.user.history_length={SESSION_LENGTH}", objective


def pooled(data: PreparedData, work: Path) -> Side:
    """The steps of the pooled tower."""
    return training(data, work / "pooled", "youtubednn", POOLED_CHANGES)


def transformer(data: PreparedData, work: Path, sampled: bool) -> Side:
    """The steps of the transformer with 256 uniform candidates a step, or with the full softmax."""
    return training(data, work / f"transformer{sampled}", "transformer", transformer_changes(sampled))


def training(data: PreparedData, folder: Path, experiment: str, changes: Sequence[str]) -> Side:
    """The trainer's steps on its own batches, epoch after epoch; making the batches counts."""
    trainer = trainer_of(data, folder, experiment, changes)
    return steps_of(trainer, endless(trainer))


def steps_of(trainer: Trainer, batches: Iterator[Batch]) -> Side:
    """The trainer's steps on these batches; making them counts."""

    def run(steps: int) -> tuple[int, float]:
        start, examples = time.perf_counter(), 0
        for batch in islice(batches, steps):
            trainer.step(batch)
            examples += len(batch.targets)
        return examples, time.perf_counter() - start

    return run


def trainer_of(
    data: PreparedData, folder: Path, experiment: str, changes: Sequence[str], device: str = "cpu"
) -> Trainer:
    """A silent trainer on `device` whose model is about to train."""
    settings = load_experiment(experiment, [*changes, f"training.device='{device}'"])
    run = Run(folder, settings, data.folder, data.fingerprint)
    trainer = Trainer(run, data, report=lambda line: None)
    trainer.model.train()
    return trainer


def endless(trainer: Trainer) -> Iterator[Batch]:
    """The batches of the trainer's process, epoch after epoch."""
    share = (trainer.world.rank, trainer.world.size)
    for epoch in count():
        yield from trainer.batches.epoch(stream(trainer.settings.seed, "order", epoch), 0, share)


DIMENSION, HEADS, WIDTH, BLOCKS = 64, 2, 128, 2
LENGTH, SEGMENTS = 200, 20
DROPOUT, TEMPERATURE = 0.2, 0.07


class BareBlock(nn.Module):
    """Pre-norm attention and gated feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(DIMENSION) for _ in range(2))
        self.attention_in = nn.Linear(DIMENSION, 3 * DIMENSION, bias=False)
        self.attention_out = nn.Linear(DIMENSION, DIMENSION, bias=False)
        self.gated_in = nn.Linear(DIMENSION, 2 * WIDTH, bias=False)
        self.gated_out = nn.Linear(WIDTH, DIMENSION, bias=False)

    def forward(self, steps: Tensor) -> Tensor:
        """Map [S, T, D] to [S, T, D]."""
        heads = self.attention_in(self.norms[0](steps)).view(*steps.shape[:2], 3, HEADS, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        steps = steps + dropout(self.attention_out(mixed.transpose(1, 2).flatten(2)), DROPOUT)
        gate, content = self.gated_in(self.norms[1](steps)).chunk(2, dim=-1)
        return steps + dropout(self.gated_out(silu(gate) * content), DROPOUT)


class BareTransformer(nn.Module):
    """Items and positions to scores over shared candidates."""

    def __init__(self, items: int) -> None:
        super().__init__()
        self.items = nn.Embedding(items, DIMENSION)
        self.positions = nn.Parameter(torch.randn(LENGTH, DIMENSION) * DIMENSION**-0.5)
        self.blocks = nn.Sequential(*(BareBlock() for _ in range(BLOCKS)))
        self.last = nn.LayerNorm(DIMENSION)

    def forward(self, rows: Tensor, candidates: Tensor | None) -> Tensor:
        """The mean loss of segments [S, T + 1], over candidates [K] and each target, or over all items."""
        vectors = normalize(self.items(rows), dim=-1)
        steps = self.blocks(dropout(vectors[:, :-1] + self.positions, DROPOUT))
        users = normalize(self.last(steps), dim=-1).flatten(0, 1) / TEMPERATURE
        if candidates is None:
            return cross_entropy(users @ normalize(self.items.weight, dim=-1).T, rows[:, 1:].flatten())
        positive = (users * vectors[:, 1:].flatten(0, 1)).sum(dim=1, keepdim=True)
        drawn = users @ normalize(self.items(candidates), dim=-1).T
        drawn = drawn.masked_fill(rows[:, 1:].reshape(-1, 1) == candidates, -torch.inf)
        scores = torch.cat([positive, drawn], dim=1)
        return cross_entropy(scores, torch.zeros(len(scores), dtype=torch.int64))


def bare_transformer(data: PreparedData, sampled: bool) -> Callable[[int], tuple[int, float]]:
    """A side that steps in a bare loop; it returns the number of positions, and the seconds."""
    torch.manual_seed(0)
    segments = [
        torch.from_numpy(data.event_items[start : start + LENGTH + 1].astype("int64"))
        for first, last in zip(data.offsets[:-1], data.splits[:, 0], strict=True)
        for start in range(int(first), int(last) - LENGTH, LENGTH)
    ]
    rows = torch.stack(segments)
    model = BareTransformer(len(data.item_ids))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0, fused=True)

    def run(steps: int) -> tuple[int, float]:
        start = time.perf_counter()
        for _ in range(steps):
            batch = rows[torch.randint(len(rows), (SEGMENTS,))]
            candidates = torch.randint(len(data.item_ids), (SAMPLED,)) if sampled else None
            loss = model(batch, candidates)
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
        return steps * SEGMENTS * LENGTH, time.perf_counter() - start

    return run
