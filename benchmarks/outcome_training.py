"""What training on outcomes gains from the places and the propensities of the answers that led to them.

In a shop whose true relevance is known, towers are trained on the outcomes of two weeks of answers, of which
a fifth explore. `value` is the expected purchases of the ten best items of the towers for each user, over
those of the ten most relevant items: what an A/B test would find in the end. All sides have the same data,
candidates and number of epochs, and no validation, which would choose by biased outcomes. In the shop `alike`
each version ranks with noise of each user and item; in the shop `biased` it also ranks some items wrongly for
all users, as versions do that are trained on their own answers.
"""

import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from benchmarks.harness import Options, over_seeds, run
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import FilesSplit, PrepareConfig
from turret.data.synthetic.answers import VERSIONS, AnswersConfig, World
from turret.data.synthetic.synthesis import synthesise_answers
from turret.training.config.experiment import load_experiment
from turret.training.evaluation.ranking import user_scores
from turret.training.loop.train import train
from turret.training.run import Run

SEEDS, EPOCHS, CLIP = (0, 1, 2, 3, 4), 40, 10
SHOP = AnswersConfig(users=2_000, items=60, pool=40, events_per_user=2, answers_per_user=20, relevance=0.03)
SHOPS = {"alike": 0.0, "biased": 1.0}
CORRECTED = f'objective.loss={{kind="top_k_off_policy", k={SHOP.places}}}'
EXAMINED = f"training.examination_clip={CLIP}"
SIDES: dict[str, tuple[str, ...]] = {
    "sampled_softmax": (),
    "sampled_softmax, examination": (EXAMINED,),
    "top_k_off_policy": (CORRECTED,),
    "top_k_off_policy, examination": (CORRECTED, EXAMINED),
}
# A user is a mean of item vectors, and an item may come again: its outcomes at all places count.
SETTINGS = (
    *("tower.dimension=16", "tower.user.hidden=[]", "tower.user.last_item=false", "training.batch_size=512"),
    *("objective.sampler.negatives=64", "training.repeats=false", "evaluation.exclude_seen=false"),
    *("training.device=cpu", "training.epochs={epochs}"),
)
Floats = NDArray[np.float64]


def prepared(config: AnswersConfig, work: Path) -> PreparedData:
    """Generate a shop in `work`, and prepare all of its events but one for training."""
    synthesise_answers(config, work, overwrite=True)
    tables = [pl.read_csv(work / name) for name in ("events.csv", "outcomes.csv")]
    log = pl.concat(tables, how="diagonal").sort("timestamp", maintain_order=True)
    log[:-1].write_parquet(work / "train.parquet")
    log[-1:].write_parquet(work / "test.parquet")
    split = FilesSplit(
        kind="files", train=work / "train.parquet", test=work / "test.parquet", validation_fraction=0.0
    )
    prepare(PrepareConfig(split=split, answers=work / "answers"), work / "prepared")
    return PreparedData.open(work / "prepared")


def best_of(scores: Floats, world: World) -> Floats:
    """The expected purchases [U] of the items with the best scores [U, N] of each user, best first."""
    places = len(world.examination)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :places]
    purchases: Floats = world.values(np.arange(len(scores)), best).sum(axis=1)
    return purchases


def towers_value(
    data: PreparedData, world: World, settings: tuple[str, ...], epochs: int, seed: int, work: Path
) -> float:
    """The value of towers that are trained with these settings."""
    named = [setting.format(epochs=epochs) for setting in SETTINGS]
    experiment = load_experiment("youtubednn", [*named, *settings, f"training.seed={seed}"])
    trained = Run(work, experiment, data.folder, data.fingerprint)
    train(trained, data, overwrite=True, report=lambda line: None)
    model = trained.open_model(data)
    with torch.no_grad():
        scores = user_scores(model, model.catalog_vectors(), data, np.arange(len(data.users)), "end")
    users, items = (
        np.array([int(str(name)[1:]) for name in ids.all_ids]) for ids in (data.users, data.item_ids)
    )
    of_all = np.full((len(users), len(world.price)), -np.inf)
    of_all[:, items] = scores.numpy()
    known = World(world.genre, world.price, world.relevance[users], world.examination)
    return float(best_of(of_all, known).mean() / best_of(known.relevance, known).mean())


def _shop(name: str, seeds: tuple[int, ...], epochs: int) -> dict[str, Any]:
    """The value of each side in a shop, that of its versions, and the estimated examination by seed."""
    rows, examination, versions = list[dict[str, Any]](), list[list[float]](), dict[str, list[float]]()
    for seed in seeds:
        config = SHOP.model_copy(update={"seed": seed, "shared_noise": SHOPS[name]})
        with tempfile.TemporaryDirectory() as folder:
            data, random = prepared(config, Path(folder)), np.random.default_rng(seed)
            world = World.of(config, random)  # the first draws of the shop
            everyone, most = np.arange(config.users), best_of(world.relevance, world).mean()
            for version, noise in zip(VERSIONS, (config.live_noise, config.canary_noise), strict=True):
                ranking = world.ranking(noise, config.pool, random, config.shared_noise)
                value = world.values(everyone, ranking[:, : config.places]).sum(axis=1).mean() / most
                versions.setdefault(version, []).append(float(value))
            assert data.examination is not None
            examination.append(data.examination.tolist())
            work = Path(folder) / "run"
            values = {
                side: towers_value(data, world, settings, epochs, seed, work)
                for side, settings in SIDES.items()
            }
        print(name, seed, values, flush=True)
        rows.append(values)
    sides = over_seeds(rows, [*SIDES])
    return {
        "shop": name,
        "versions": {version: mean(values) for version, values in versions.items()},
        "sides": [{"side": side, **sides[side], "by_seed": [row[side] for row in rows]} for side in SIDES],
        "examination": examination,
    }


def outcome_training(options: Options) -> dict[str, Any]:
    """The values of all sides in both shops, and the examination of the places, estimated and true."""
    torch.set_num_threads(1)  # of matrices as small as these, more threads are slower
    seeds, epochs = (SEEDS[:1], 2) if options.quick else (SEEDS, EPOCHS)
    shops = [_shop(name, seeds, epochs) for name in SHOPS]
    estimated = np.array([estimate for shop in shops for estimate in shop.pop("examination")])
    truth = np.arange(1, SHOP.places + 1) ** -0.7
    return {
        "seeds": list(seeds),
        "epochs": epochs,
        "clip": CLIP,
        "shop": {"users": SHOP.users, "items": SHOP.items, "explore": SHOP.explore},
        "shops": shops,
        "examination": [
            {"place": place, "true": true, "mean": float(values.mean()), "deviation": float(values.std())}
            for place, (true, values) in enumerate(zip(truth.tolist(), estimated.T, strict=True), start=1)
        ],
    }


if __name__ == "__main__":
    run(outcome_training, needs_data=False)
