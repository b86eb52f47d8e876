"""Questions in words: towers without and with ready vectors, beside BM25, on sets with published splits.

    python -m benchmarks.questions --json

Each set is prepared by `turret data prepare --queries`, and trained by the experiment `questions` with 3
seeds. Ready vectors of English texts are those of all-MiniLM-L6-v2, computed once by a peer.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import polars as pl

from benchmarks.harness import Options, run_rows
from benchmarks.peers.peer import Peer, environment, peers_option
from turret.data.configuration import load_configuration
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.trained_run import train

SEEDS = (0, 1, 2)
# All labelled candidates are ranked.
LABELLED = {"evaluation.candidates": "labelled", "evaluation.k": [100], "training.metric": "mrr@100"}
RANKED = {"evaluation.k": [1, 10], "training.metric": "mrr@10"}


@dataclass(frozen=True)
class Pairs:
    """A set: its pairs, its items with a text each (None: the texts of the pairs), and how it is judged."""

    pairs: pl.DataFrame
    items: pl.DataFrame | None = None
    match: str = "answers"
    settings: Mapping[str, Any] = field(default_factory=lambda: RANKED)

    @property
    def metric(self) -> str:
        """The MRR that the set is compared by."""
        return str(self.settings["training.metric"])


def trecqa(folder: Path) -> Pairs:
    """Answer sentences; validation and test have only questions with a right and a wrong answer."""
    pairs = pl.read_parquet(folder / "trecqa" / "pairs.parquet")
    kept = pairs.filter(pl.col("clean") | (pl.col("split") == "train"))
    return Pairs(kept.select("question", "answer", "label", "split"), settings=LABELLED)


def selqa(folder: Path) -> Pairs:
    """Answer sentences; trained on the development part, as the training part is not there."""
    pairs = pl.read_parquet(folder / "selqa" / "pairs.parquet").filter(
        pl.col("answer").str.strip_chars() != ""
    )
    split = pl.col("split").replace({"dev": "train"})
    return Pairs(pairs.select("question", "answer", "label", split), settings=LABELLED)


def stackfaq(folder: Path) -> Pairs:
    """Threads of questions and answers; their other questions are divided by the hash of their text."""
    faq = pl.read_parquet(folder / "stackfaq" / "faq.parquet")
    text = pl.concat_str(pl.col("question").first(), pl.col("answer").str.join(" "), separator=" ")
    items = faq.group_by("thread", maintain_order=True).agg(text.alias("text")).rename({"thread": "item"})
    queries = pl.read_parquet(folder / "stackfaq" / "queries.parquet")
    return Pairs(queries.select("query", item="thread"), items)


def banking77(folder: Path) -> Pairs:
    """Intents of a bank's customers: the stored questions of the same intent are right."""
    queries = pl.read_parquet(folder / "banking77" / "queries.parquet")
    return Pairs(queries.select(query="text", item="intent", split="split"), match="questions")


def clinc150(folder: Path) -> Pairs:
    """Intents of an assistant, those in scope."""
    queries = pl.read_parquet(folder / "clinc150" / "queries.parquet").filter(pl.col("in_scope"))
    return Pairs(queries.select(query="text", item="intent", split="split"), match="questions")


def afqmc(folder: Path) -> Pairs:
    """Chinese pairs of questions; the development part is the test, as the test part has no labels."""
    pairs = pl.read_parquet(folder / "afqmc" / "pairs.parquet").filter(pl.col("same").is_not_null())
    split = pl.col("split").replace({"dev": "test"})
    return Pairs(pairs.select("question_1", "question_2", split, label="same"))


def drcd(folder: Path) -> Pairs:
    """Chinese questions about passages, which share their words; trained on the development part."""
    questions = pl.read_parquet(folder / "zh-passages" / "questions.parquet").filter(
        pl.col("source") == "drcd"
    )
    passages = pl.read_parquet(folder / "zh-passages" / "passages.parquet").filter(pl.col("source") == "drcd")
    split = pl.col("split").replace({"dev": "train"})
    item = pl.concat_str("split", "passage_id", separator=" ").alias("item")
    text = pl.concat_str("title", "passage", separator=" ").alias("text")
    return Pairs(questions.select("question", item, split), passages.select(item, text))


ENGLISH = {
    "trecqa": trecqa,
    "selqa": selqa,
    "stackfaq": stackfaq,
    "banking77": banking77,
    "clinc150": clinc150,
}
CHINESE = {"afqmc": afqmc, "drcd": drcd}
LOSSES: dict[str, dict[str, Any]] = {
    "in-batch softmax with logQ": {},
    "binary cross entropy": {"objective": {"loss": "binary_cross_entropy", "candidates": "labelled"}},
    "hinge on cosines": {
        "objective": {"loss": "cosine_hinge", "candidates": "given"},
        "tower.scoring.temperature": 1.0,
    },
    "cosine embedding": {
        "objective": {"loss": "cosine_embedding", "candidates": "labelled"},
        "tower.scoring.temperature": 1.0,
    },
}
LOSS_SET = "selqa"


def prepared(pairs: Pairs, work: Path, python: Path | None) -> PreparedData:
    """Prepare a set, with the vectors of all texts if there is a Python that computes them."""
    pairs.pairs.write_parquet(work / "pairs.parquet")
    overrides: dict[str, Any] = {"queries.source": str(work / "pairs.parquet"), "queries.match": pairs.match}
    overrides["on_bad"] = "drop"
    if pairs.items is not None:
        pairs.items.write_parquet(work / "items.parquet")
        overrides |= {"items": str(work / "items.parquet"), "item_features.text": ["text"]}
    config = load_configuration(PrepareConfig, overrides=overrides)
    data = PreparedData.open(prepare(config, work / "texts").folder)
    if python is None:
        return data
    queries = [str(query) for query in data.users.ids(range(len(data.users)))]
    (text,) = (feature.name for feature in data.item_features.features if feature.kind == "text")
    entries = []
    for role, ids, texts in (
        ("user", queries, queries),
        ("item", [str(item) for item in data.item_ids.ids(range(len(data.item_ids)))], data.fields[text]),
    ):
        path = work / f"{role}.npy"
        encode(texts, path, python)
        np.save(work / f"{role}.ids.npy", np.array(ids))
        entries.append((f"{role}_features.vector", [f"sentence={path}"]))
    config = load_configuration(PrepareConfig, overrides=overrides | dict(entries))
    return PreparedData.open(prepare(config, work / "vectors").folder)


def encode(texts: list[Any], path: Path, python: Path) -> None:
    """Write the vectors of texts."""
    source = path.with_suffix(".texts.parquet")
    pl.DataFrame({"text": [str(text) for text in texts]}).write_parquet(source)
    with Peer("all-MiniLM-L6-v2", "sentence_vectors", python, source, {"to": str(path)}, 3600.0) as peer:
        peer.ask(1)


def measure(options: Options, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One row for each set, and one for each loss."""
    done = {row["name"] for row in rows}
    seeds = SEEDS[:1] if options.quick else SEEDS
    sets = {"trecqa": trecqa} if options.quick else {**ENGLISH, **CHINESE}
    python = None if options.quick else environment("sentence_vectors", options.given.peers)
    for name, read in sets.items():
        losses = LOSSES if name == LOSS_SET else {}
        if {name, *losses} <= done:
            continue
        pairs, vectors = read(options.data), python if name in ENGLISH else None
        with tempfile.TemporaryDirectory() as folder:
            data = prepared(pairs, Path(folder), vectors)
            text = next(feature.name for feature in data.item_features.features if feature.kind == "text")

            def reads(*more: str, text: str = text) -> dict[str, Any]:
                return {"tower.user.features": ["query", *more], "tower.item.features": [text, *more]}

            ways = {"nothing": reads(), **({"vectors": reads("sentence")} if vectors else {})}
            if name not in done:
                yield _row(name, data, pairs, ways, seeds, Path(folder) / "run")
            for loss, settings in losses.items():
                if loss not in done:
                    way = {loss: reads() | settings}
                    yield {**_row(loss, data, pairs, way, seeds, Path(folder) / "run"), "of": name}


def _row(
    name: str,
    data: PreparedData,
    pairs: Pairs,
    ways: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    folder: Path,
) -> dict[str, Any]:
    """The means over seeds of the test MRR of each way, with the deviation of one seed, and BM25 beside them.

    HR@1 is in the row, too, where it is measured.
    """
    row: dict[str, Any] = {"name": name, "metric": pairs.metric, "seeds": len(seeds)}
    for way, changes in ways.items():
        reports = []
        for seed in seeds:
            settings = {**pairs.settings, **changes, "training.seed": seed}
            run = train(data, folder, experiment="questions", settings=settings, overwrite=True)
            reports.append(run.evaluate("test", ["bm25"]))
        first, towers = reports[0], [report["towers"] for report in reports]
        row |= {"queries": first["users"], "items": first["items"]}
        row["bm25"] = first["bm25"][pairs.metric]["mean"]
        values = [metrics[pairs.metric]["mean"] for metrics in towers]
        row[way] = {"mrr": mean(values), "deviation": stdev(values) if len(values) > 1 else 0.0}
        if "hr@1" in towers[0]:
            row[way]["hr@1"] = mean(metrics["hr@1"]["mean"] for metrics in towers)
    return row


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The least ratio of towers over ready vectors to BM25."""
    ratios = [row["vectors"]["mrr"] / row["bm25"] for row in rows if "vectors" in row]
    return {"least_over_bm25": min(ratios)} if ratios else {}


if __name__ == "__main__":
    run_rows(measure, more=peers_option(), summary=summary)
