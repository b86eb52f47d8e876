"""A log that says which items were not chosen, from the file to the metrics, with the commands of a user."""

import json
import random
from pathlib import Path

import pytest

from tests.support.command_line import output, run

QUICK = ("--set", "training.batch_size=64", "--set", "tower.dimension=8", "--set", "training.epochs=8")
COSINE = ("--set", "tower.scoring.temperature=1", "--set", "training.learning_rate=0.02")
HINGE = ("--set", 'objective={loss="cosine_hinge", candidates="given"}', *COSINE)
ITEMS, LENGTH = 24, 14


def impressions(folder: Path) -> None:
    """A log with labels and the same log as triples: each user goes round the catalog, item by item.

    Every choice is between the next item, an item of the other half, and one of all.
    """
    draw = random.Random(0)
    labelled, triples = ["user,item,time,label"], ["user,item,time,negatives"]
    for user in range(60):
        for time in range(LENGTH):
            item = (user + time) % ITEMS
            offered = [(item + ITEMS // 2 + draw.randrange(4)) % ITEMS, draw.randrange(ITEMS)]
            wrong = [other for other in offered if other != item]
            rows = [*((other, -1) for other in wrong), (item, 1)]
            labelled += [f"u{user},i{other},{time},{label}" for other, label in rows]
            triples.append(f"u{user},i{item},{time},{'|'.join(f'i{other}' for other in wrong)}")
    (folder / "labelled.csv").write_text("\n".join(labelled))
    (folder / "triples.csv").write_text("\n".join(triples))


@pytest.mark.nightly
def test_labels_and_given_negatives_train_what_they_are_for(tmp_path: Path) -> None:
    """Both forms of one log are the same data; each loss learns which item comes next.

    Eleven items of 24 are not seen and left out; a random order of them has an ndcg@10 of 0.41 on average.
    """
    impressions(tmp_path)
    for name, option in {"labelled": "--label", "triples": "--negatives"}.items():
        column = option.removeprefix("--")
        output("data", "prepare", f"{name}.csv", option, column, "--to", name, folder=tmp_path)
    told = [output("data", "describe", name, folder=tmp_path) for name in ("labelled", "triples")]
    prints = [line for text in told for line in text.splitlines() if line.startswith("fingerprint")]
    assert prints[0] == prints[1]
    assert "given negatives" in told[0]
    embedding = ("--set", "objective.loss=cosine_embedding", *COSINE)
    for name, settings in {"pairs": (), "embedding": embedding, "hinge": HINGE}.items():
        trained = ("train", "--data", "labelled", "-e", "labelled_pairs", "--run", name, *QUICK, *settings)
        assert "best auc" in output(*trained, folder=tmp_path)
        report = json.loads(output("evaluate", name, "--json", folder=tmp_path))
        assert report["towers"]["ndcg@10"]["mean"] > 0.8
        assert report["towers"]["auc"]["mean"] > 0.9 > report["popularity"]["auc"]["mean"]


def test_a_log_without_labels_is_refused_before_training(tmp_path: Path) -> None:
    """With a remedy."""
    impressions(tmp_path)
    output("data", "prepare", "triples.csv", "--to", "plain", folder=tmp_path)
    refused = run("train", "--data", "plain", "-e", "labelled_pairs", "--run", "run", folder=tmp_path)
    assert refused.returncode == 1
    assert "plain has none; prepare the data with --label or --negatives" in refused.stderr
