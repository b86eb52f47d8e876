"""How near Turret is to what the machine can do: `python -m benchmarks.floors --json`.

A floor is the time in which the machine could do the least that a thing needs: multiplications at the peak of
a matrix product, bytes at the bandwidth of memory of that size, requests at the rate of a server that reads
none. Counts come from the shapes of the data and the models; the rates of `benchmarks.machine_rates` and our
time are measured in turns; the parts of a floor add up. `share` is the median of floor / time over the turns,
with the least and the greatest; `least_share` is the least of all things, that of `least`. Bundles of a shop
of 27,000 items are made once and kept below var/; the rest takes some minutes.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch
from torch import nn

from benchmarks import machine_rates as rates
from benchmarks.harness import Options, run
from benchmarks.kernel_cost import BATCH, NEGATIVES, WIDTH, FullStep, SampledStep
from benchmarks.load import Load, processors, run_load
from benchmarks.peers.contestants import NEGATIVES as POOLED_CANDIDATES
from benchmarks.peers.contestants import SAMPLED, THREADS
from benchmarks.preparation import timed_turn, write_log
from benchmarks.processes import alone, post, running_service
from benchmarks.scale_training import folder_mb
from benchmarks.serving_shop import HISTORY, VERSIONS, Served, served_shop
from benchmarks.training_sides import POOLED_CHANGES, endless, steps_of, trainer_of, transformer_changes
from benchmarks.training_speed import gowalla, ranked_users, ranking_seconds
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.tower.bundle.bundle import Bundle
from turret.tower.format.index_settings import ApproximateSettings, IvfPqSettings
from turret.tower.index.index import Index
from turret.tower.layers.packed import PackedHistories
from turret.tower.towers.transformer import CausalAttention
from turret.training.config.experiment import load_experiment
from turret.training.process import keep_freed_memory
from turret.training.run import build_model

TURNS, QUICK_TURNS = 7, 2
FLOAT = 4  # bytes
# AdamW reads a weight, its gradient and both moments, and writes all but the gradient.
ADAM, ADAM_HELD = 7 * FLOAT, 4 * FLOAT
# A product has two others of its size in its backward pass: by either factor.
TRAINED = 3
SAMPLE, STEPS, POOLED_STEPS = 8, 5, 20
FULL_ITEMS, DRAW_ITEMS, LOG_EVENTS = 100_000, 1_000_000, 1_000_000
QUICK_FULL_ITEMS, QUICK_DRAW_ITEMS, QUICK_LOG_EVENTS = 10_000, 10_000, 100_000
EVENT = 3 * 8  # bytes: a user, an item and a time
SHOP, QUICK_SHOP = 27_000, 2_000
K, SEARCHES, DRAWS, OPENED = 10, 200, 20, 5
PATH, LOAD_SECONDS, QUICK_LOAD_SECONDS = "/v1/recommend", 1.0, 0.3


@dataclass(frozen=True)
class Part:
    """Part of a floor: a count of `kind`, and how many a second the machine can do."""

    kind: str
    count: float
    rate: Callable[[], float]


@dataclass(frozen=True)
class Thing:
    """A thing that Turret does, the sentence on its floor, and our seconds for it."""

    name: str
    counted: str
    parts: tuple[Part, ...]
    seconds: Callable[[], float]
    threads: int = 1


def measured(thing: Thing, turns: int) -> dict[str, Any]:
    """Measure the floor and our time in turns, after a turn of ours that does not count."""
    torch.set_num_threads(thing.threads)
    thing.seconds()
    floors, times = [], []
    for _ in range(turns):
        floors.append(sum(part.count / part.rate() for part in thing.parts))
        times.append(thing.seconds())
    shares = [floor / seconds for floor, seconds in zip(floors, times, strict=True)]
    return {
        "thing": thing.name,
        "counted": thing.counted,
        "threads": thing.threads,
        "counts": {part.kind: part.count for part in thing.parts},
        "floor_us": 1e6 * statistics.median(floors),
        "taken_us": 1e6 * statistics.median(times),
        "share": statistics.median(shares),
        "share_least": min(shares),
        "share_greatest": max(shares),
    }


def _median(calls: Iterable[Callable[[], object]]) -> float:
    """The median seconds of the calls, one after the other."""
    times = []
    for call in calls:
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def _linear(module: nn.Module) -> int:
    """Multiplications of all linear layers for one row."""
    return sum(layer.weight.numel() for layer in module.modules() if isinstance(layer, nn.Linear))


def _mean(values: Iterator[float]) -> float:
    return statistics.fmean(values)


def attended_pairs(histories: PackedHistories) -> int:
    """Pairs of a step and a step that it attends to: segments begin where windows do, and are causal."""
    starts, places = np.unique(histories.starts.numpy(), return_inverse=True)
    ends = np.zeros_like(starts)
    np.maximum.at(ends, places, histories.ends.numpy())
    lengths = ends - starts
    return int((lengths * (lengths + 1) // 2).sum())


def _step(
    name: str, experiment: str, changes: Sequence[str], candidates: int, data: PreparedData, folder: Path
) -> Thing:
    """A step of an experiment; its counts are the means over some of its batches."""
    trainer = trainer_of(data, folder / name.replace(" ", "_"), experiment, changes)
    batches, model = endless(trainer), trainer.model
    sample = list(islice(batches, SAMPLE))
    width, is_pooled = model.config.dimension, experiment != "transformer"
    examples = _mean(float(len(batch.targets)) for batch in sample)
    events = _mean(float(len(batch.histories.rows)) for batch in sample)
    blocks = sum(isinstance(module, CausalAttention) for module in model.modules())
    products = _linear(model.user) * (examples if is_pooled else events)
    products += blocks * 2 * width * _mean(float(attended_pairs(batch.histories)) for batch in sample)
    products += (candidates + 1) * width * examples
    numbers = sum(parameter.numel() for parameter in model.parameters())
    table, row = len(data.item_ids) * width * FLOAT, width * FLOAT
    steps, side = POOLED_STEPS if is_pooled else STEPS, steps_of(trainer, batches)
    return Thing(
        name,
        "the products of the layers, of attention and of the scores, forward and backward; each event's "
        "vector read, and its gradient added; AdamW's numbers read and written",
        (
            Part("multiplications", TRAINED * products, rates.multiplied),
            Part("bytes of vectors", 3 * events * row, partial(rates.gathered, table, row)),
            Part("bytes of AdamW", ADAM * numbers, partial(rates.copied, ADAM_HELD * numbers)),
        ),
        lambda: side(steps)[1] / steps,
        THREADS,
    )


def training(options: Options, work: Path) -> Iterator[Thing]:
    """A pooled and a transformer step on MovieLens 1M, the full softmax, and the draw of a kernel."""
    prepare(PrepareConfig(source=options.data / "sasrec_ml-1m" / "interactions.parquet"), work / "ml-1m")
    data = PreparedData.open(work / "ml-1m")
    yield _step("pooled step", "youtubednn", POOLED_CHANGES, POOLED_CANDIDATES, data, work)
    yield _step("transformer step", "transformer", transformer_changes(sampled=True), SAMPLED, data, work)
    yield full_softmax(QUICK_FULL_ITEMS if options.quick else FULL_ITEMS)
    yield kernel_draw(QUICK_DRAW_ITEMS if options.quick else DRAW_ITEMS)


def full_softmax(items: int) -> Thing:
    """A step of `benchmarks.kernel_cost` with the full softmax."""
    step, numbers = FullStep(items), items * WIDTH
    return Thing(
        "full softmax",
        f"three products of {BATCH} users and {items:,} items of width {WIDTH}; AdamW's numbers read and "
        "written",
        (
            Part("multiplications", TRAINED * BATCH * numbers, rates.multiplied),
            Part("bytes of AdamW", ADAM * numbers, partial(rates.copied, ADAM_HELD * numbers)),
        ),
        lambda: statistics.median(step() for _ in range(3)),
        THREADS,
    )


def kernel_draw(items: int) -> Thing:
    """The draw of `benchmarks.kernel_cost`: candidates with their log counts."""
    step = SampledStep(items)
    features, positives = step.towers.batch(0)
    users, rows = step.towers.user_vectors(features).detach(), BATCH * (NEGATIVES + 1)

    def draw() -> None:
        step.sampler.draw(users, positives, step.context())
        step.steps += 1

    row = WIDTH * FLOAT
    return Thing(
        "kernel draw",
        f"{NEGATIVES} candidates and the positive of {BATCH} users out of {items:,} items: a vector of each "
        "read at random, its product with the user, and the mass of all kernels by the moments of the items",
        (
            Part("bytes of vectors", rows * row, partial(rates.gathered, items * row, row)),
            Part("multiplications", rows * WIDTH + BATCH * WIDTH**2, rates.multiplied),
        ),
        lambda: _median(repeat(draw, DRAWS)),
        THREADS,
    )


def evaluation(options: Options, work: Path) -> Thing:
    """The full ranking of gowalla of `benchmarks.training_speed`."""
    data = gowalla(options, work / "gowalla")
    model, relevant = build_model(load_experiment("youtubednn"), data), ranked_users(data, options.quick)
    users, items, width = len(relevant.users), len(data.item_ids), model.config.dimension
    products = users * (items * width + _linear(model.user)) + items * _linear(model.item)
    return Thing(
        "evaluation",
        f"the products of {users:,} users and {items:,} items, and of the layers of both towers; the top-k "
        "is free",
        (Part("multiplications", float(products), rates.multiplied),),
        lambda: ranking_seconds(model, data, relevant),
        THREADS,
    )


def preparation(options: Options, work: Path) -> Thing:
    """The preparation of a log in Parquet by `benchmarks.preparation`."""
    events = QUICK_LOG_EVENTS if options.quick else LOG_EVENTS
    log, target = work / "log", work / "prepared"
    write_log(log, events)

    def seconds() -> float:
        return alone(timed_turn, "prepare", log, target / str(time.monotonic_ns()))["seconds"]

    target.mkdir()
    seconds()
    (done,) = target.iterdir()
    read, written = (round(1e6 * folder_mb(folder)) for folder in (log, done))
    return Thing(
        "preparation",
        f"{events:,} events: the log read from the system's cache, each event moved once to its user's "
        "place, and the prepared files written",
        (
            Part("bytes read", read, partial(rates.read_from, sorted(log.iterdir()))),
            Part("bytes moved", events * EVENT, partial(rates.gathered, events * EVENT, EVENT)),
            Part("bytes written", written, partial(rates.written_to, work / "written", written)),
        ),
        seconds,
        THREADS,
    )


def _search_part(index: Index) -> tuple[str, tuple[Part, ...]]:
    """The sentence and the counts of one search."""
    settings, (items, width) = index.settings, index.vectors().shape
    row, table = width * FLOAT, items * width * FLOAT
    if not isinstance(settings, ApproximateSettings):
        return f"{items:,} vectors read", (Part("bytes of vectors", table, partial(rates.read, table)),)
    effort = next(effort for effort in settings.efforts if effort.k >= K)
    code = settings.parts / 2 if isinstance(settings, IvfPqSettings) else settings.width(width)
    share, centres, sentence = 1.0, 0, f"the codes of {items:,} items"
    if not settings.reads_all:
        share, centres = effort.breadth / settings.lists, settings.lists * settings.width(width) * FLOAT
        sentence = f"{settings.lists:,} centres and a share {share:.2f} of {sentence}"
    return (
        f"{sentence} read, and {effort.candidates} vectors at random ({settings.kind})",
        (
            Part("bytes of codes", items * code * share + centres, partial(rates.read, round(items * code))),
            Part("bytes of vectors", effort.candidates * row, partial(rates.gathered, table, row)),
        ),
    )


def _searching(name: str, index: Index, queries: np.ndarray) -> Thing:
    return Thing(
        name, *_search_part(index), lambda: _median(partial(index.nearest, query, K) for query in queries)
    )


def searches(bundle: Bundle, shop: Served) -> Iterator[Thing]:
    """One search for ten items, of every vector and by the index that `turret index` chooses."""
    data = PreparedData.open(shop.bundles.parent / "prepared")
    histories = [data.history(user, "end")[-HISTORY:] for user in range(min(SEARCHES, len(data.users)))]
    queries = bundle.encoder.encode(histories, [{}] * len(histories))
    yield _searching("one exact search", bundle.index.exact, queries)
    yield _searching("one index search", bundle.index, queries)


def loading(shop: Served) -> Thing:
    """Opening a bundle, with the checksums of its files."""
    folder = shop.bundles / VERSIONS[0]
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return Thing(
        "loading a bundle",
        "all files read from the system's cache; checksums and checks are free",
        (Part("bytes read", shop.bundle_bytes, partial(rates.read_from, files)),),
        lambda: _median(repeat(partial(Bundle.open, folder), OPENED)),
    )


@contextmanager
def requests(shop: Served, bundle: Bundle, seconds: float) -> Iterator[list[Thing]]:
    """One request over 1 and 16 connections; the service and the bare server keep to one processor."""
    ours, others = processors(2)
    with ExitStack() as running:
        service = running.enter_context(running_service(shop.bundles))
        service.keep_to(ours)
        body = post(service.url, PATH, shop.bodies[0])
        bare = running.enter_context(rates.answering(ours, body))
        searched, parts = _search_part(bundle.index)

        def rate(url: str, connections: int) -> float:
            load = Load(url, PATH, shop.bodies, connections, seconds, cpu=others)
            return run_load(load).checked().rate()

        def taken(connections: int) -> float:
            return 1.0 / rate(service.url, connections)

        yield [
            Thing(
                f"one request, {connections} connection{'s' * (connections > 1)}",
                "an answer of a server that reads no request, from the same load: epoll, recv and send; one "
                f"search: {searched}",
                (Part("requests", 1.0, partial(rate, bare, connections)), *parts),
                partial(taken, connections),
            )
            for connections in (1, 16)
        ]


def things(options: Options, work: Path) -> Iterator[Thing]:
    """All things, each made when its turn comes."""
    yield from training(options, work)
    yield evaluation(options, work)
    yield preparation(options, work)
    shop = served_shop(QUICK_SHOP if options.quick else SHOP)
    bundle = Bundle.open(shop.bundles / VERSIONS[0])
    yield from searches(bundle, shop)
    with requests(shop, bundle, QUICK_LOAD_SECONDS if options.quick else LOAD_SECONDS) as both:
        yield from both
    yield loading(shop)


def measure(options: Options) -> dict[str, Any]:
    """Measure everything, and name the thing with the least share."""
    load = os.getloadavg()[0]
    if load > 1:
        print(f"The machine is busy (load {load:.1f}): neither the floors nor our times are its own.")
    keep_freed_memory()
    faiss.omp_set_num_threads(1)
    turns, rows = QUICK_TURNS if options.quick else TURNS, []
    with tempfile.TemporaryDirectory(prefix="turret-floors-") as folder:
        for thing in things(options, Path(folder)):
            rows.append(measured(thing, turns))
            print(f"{thing.name}: {rows[-1]['share']:.3f}", flush=True)
    least = min(rows, key=lambda row: float(row["share"]))
    return {
        "least_share": least["share"],
        "least": least["thing"],
        "turns": turns,
        "load": load,
        "things": rows,
    }


if __name__ == "__main__":
    run(measure)
