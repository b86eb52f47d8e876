"""How near proposals by n-grams are to the softmax of a model, while one of them follows it.

The shipped YouTubeDNN is trained with the adaptive n-gram sampler in batches of 512. After each epoch the
divergence of the model's softmax from each proposal is measured on 512 training examples: from the unigram,
the bigram, and the mixture as it began and as it has become.
"""

import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import Options, run
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.training.config.experiment import load_experiment
from turret.training.randomness import stream
from turret.training.report.divergence import divergence
from turret.training.report.queries import ExampleSource
from turret.training.run import Run
from turret.training.samplers.adaptive.ngram import AdaptiveNgramConfig
from turret.training.samplers.core.contract import DrawContext
from turret.training.samplers.core.settings import SamplerContext, SamplerSettings
from turret.training.samplers.fixed.bigram import BigramConfig
from turret.training.samplers.fixed.popularity import UnigramConfig
from turret.training.statistics import PreparedStatistics
from turret.training.trainer import Trainer

SET, EVENTS = "ml-100k", "ratings.parquet"
EXAMPLES = 512
SETTINGS = (
    'objective={loss = "sampled_softmax", sampler = "adaptive_ngram"}',
    "training.batch_size=512",
)
STATIC: dict[str, SamplerSettings] = {
    "unigram": UnigramConfig(alpha=1.0),
    "bigram": BigramConfig(),
    "mixture at first": AdaptiveNgramConfig(),
}


def divergences(trainer: Trainer) -> dict[str, float | None]:
    """The mean KL in nats of each proposal from the softmax of the model as it is."""
    experiment, data = trainer.run.experiment, trainer.data
    user, scoring = experiment.tower.user, experiment.tower.scoring
    source = ExampleSource(data, user.history_length, user.reads_times)
    examples = source.read(trainer.model, EXAMPLES, stream(0, "examples", 0))
    vectors = trainer.model.current_vectors(torch.arange(len(data.item_ids)))
    context = DrawContext(stream(0, "unused", 0), examples.last_items, vectors, vectors.__getitem__)
    statistics = SamplerContext(PreparedStatistics(data), scoring, 0, torch.device("cpu"))
    samplers = {name: settings.build(statistics) for name, settings in STATIC.items()}
    assert trainer.objective.sampler is not None
    samplers["mixture that follows"] = trainer.objective.sampler
    return {
        name: divergence(examples, vectors, scoring, sampler.probability(examples.users, context)).kl
        for name, sampler in samplers.items()
    }


def measure(options: Options) -> dict[str, Any]:
    """Train, and measure after each epoch."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = PrepareConfig.model_validate({"source": options.data / SET / EVENTS})
        prepare(config, folder / "prepared")
        data = PreparedData.open(folder / "prepared")
        epochs = f"training.epochs={1 if options.quick else 6}"
        experiment = load_experiment("youtubednn", (*SETTINGS, epochs))
        run = Run(folder / "run", experiment, data.folder, data.fingerprint)
        run.write()

        def look(epoch: int, value: float) -> bool:
            rows.append({"epoch": epoch, **divergences(trainer)})
            return False

        trainer = Trainer(run, data, observe=look)
        trainer.train()
        return {"set": SET, "items": len(data.item_ids), "examples": EXAMPLES, "rows": rows}


if __name__ == "__main__":
    run(measure)
