"""`turret report samplers`: what is measured of each sampler, and how it is shown."""

import itertools
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.support.places import check_snapshot
from turret.data.prepared import PreparedData
from turret.tower.config import ScoringConfig
from turret.training.config.experiment import load_experiment
from turret.training.errors import TrainingError
from turret.training.randomness import stream
from turret.training.run import Run, remove_run
from turret.training.sampler_report.measures import Queries, gradient_error
from turret.training.sampler_report.samplers import ReportRequest, SamplerReport, entries, report_samplers
from turret.training.sampler_report.shown import recommendation, report_table
from turret.training.samplers.core.contract import Draw, drawn_from


@pytest.fixture(scope="module")
def asked() -> ReportRequest:
    """As little as can be measured."""
    return ReportRequest(negatives=(4,), queries=8, draws=20, batch_sizes=(32, 64))


@pytest.fixture
def folder(evaluated: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run, of which the measuring is left out."""
    monkeypatch.setattr(SamplerReport, "measure", lambda _: whole_report())
    shutil.copytree(evaluated.folder, tmp_path / "run")
    return tmp_path / "run"


def test_figures_and_picture_are_kept_with_the_run(
    folder: Path, asked: ReportRequest, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """People see a table and where the rest is, programs JSON; both go with a run that is replaced."""
    report_samplers(folder, None, asked, None, as_json=False)
    shown = capsys.readouterr().out
    assert "sampled softmax on 8 queries" in shown
    assert f"Plot: {folder / 'samplers.png'}." in shown
    assert json.loads((folder / "samplers.json").read_text()) == whole_report()
    assert (folder / "samplers.png").read_bytes().startswith(b"\x89PNG")
    report_samplers(folder, None, asked, tmp_path / "there" / "it.svg", as_json=True)
    assert json.loads(capsys.readouterr().out) == whole_report()
    drawn = (tmp_path / "there" / "it.svg").read_text("utf-8")
    assert all(f"<!-- {name} -->" in drawn for name in ("uniform", "in_batch", "candidates K"))
    remove_run(folder)
    assert list(folder.iterdir()) == []


def test_what_can_not_be_measured_or_drawn_is_refused_and_leaves_nothing(
    folder: Path, evaluated: Run, shop: PreparedData, asked: ReportRequest, tmp_path: Path
) -> None:
    with pytest.raises(TrainingError, match=r"--output x\.gif.*\.png, \.svg or \.pdf"):
        report_samplers(folder, None, asked, Path("x.gif"), as_json=False)
    assert not (folder / "samplers.json").exists()
    of_words = load_experiment("youtubednn", ['objective={loss="hierarchical_softmax"}'])
    with pytest.raises(TrainingError, match=r"hierarchical_softmax.*another loss"):
        SamplerReport(replace(evaluated, experiment=of_words), shop, asked)
    with pytest.raises(TrainingError, match="no model was saved yet"):
        SamplerReport(replace(evaluated, folder=tmp_path), shop, asked)


@pytest.fixture(scope="module")
def small_steps(evaluated: Run) -> Run:
    """The run, with batches of 64 examples: a step of each of some fifty samplers is timed."""
    training = evaluated.experiment.training.model_copy(update={"batch_size": 64})
    return replace(evaluated, experiment=evaluated.experiment.model_copy(update={"training": training}))


@pytest.fixture(scope="module")
def report(small_steps: Run, shop: PreparedData, asked: ReportRequest) -> dict[str, Any]:
    """All samplers at one size: a few seconds, once for this file."""
    return SamplerReport(small_steps, shop, asked).measure()


def test_every_sampler_has_its_figures(report: dict[str, Any], shop: PreparedData) -> None:
    """On this shop all of them can be built, and JSON can hold what they gave."""
    labels = [entry.label for entry in entries((4,), 64)]
    assert [row["sampler"] for row in report["samplers"]] == labels
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    for row in report["samplers"]:
        assert 0.0 <= row["bias_low"] <= row["bias"] <= row["bias_high"]
        assert row["variance"] >= 0.0
        assert 0.0 < row["effective_share"] <= 1.0 + 1e-6
    assert (report["queries"], report["items"]) == (8, len(shop.item_ids))


def test_the_softmax_is_the_proposal_without_divergence(report: dict[str, Any]) -> None:
    """And its weights are all alike, where it leaves the positive out; the uniform one's are not."""
    rows = {row["sampler"]: row for row in report["samplers"]}
    assert rows["softmax, no positive"]["kl"] == pytest.approx(0.0, abs=1e-5)
    assert rows["softmax, no positive"]["effective_share"] == pytest.approx(1.0, abs=1e-3)
    assert rows["uniform"]["kl"] > 0.01
    assert rows["uniform"]["effective_share"] < 0.99


def priced(
    name: str, milliseconds: float, bias: float, low: float = 0.001, size: int | None = 64
) -> dict[str, Any]:
    biases = {"bias": bias, "bias_low": low, "bias_high": bias + 0.01}
    return {"sampler": name, "negatives": size, "milliseconds": milliseconds, **biases}


@pytest.mark.parametrize(
    ("full", "rows", "words"),
    [
        (
            20.0,
            [priced("uniform", 2, 0.4), priced("quadratic", 4, 0.03), priced("dear", 6, 0.001)],
            "sampled_softmax with quadratic (K = 64): bias 3.0%, 4.0 ms a step; it is the cheapest",
        ),
        (20.0, [priced("in_batch", 4, 0.0, 0.0, None)], "in_batch: bias at most 1.0%, 4.0 ms a step"),
        (
            20.0,
            [priced("uniform", 2, 0.4), priced("quadratic", 4, 0.3), priced("exact", 19, 0.0)],
            "none has a bias of at most 5%; the least is quadratic (K = 64): bias 30.0%, 4.0 ms a step.",
        ),
        (2.0, [priced("uniform", 1.9, 0.0)], "no bias; no sampler saves a tenth of its step."),
    ],
)
def test_the_cheapest_sampler_with_little_bias_is_recommended(
    full: float, rows: list[dict[str, Any]], words: str
) -> None:
    """The full softmax where none is, or where none is cheaper."""
    assert words in recommendation({"full_softmax": {"milliseconds": full}, "samplers": rows})


def shown_row(**changed: Any) -> dict[str, Any]:
    figures = {
        "sampler": "uniform",
        "negatives": 4,
        "candidates": 4.0,
        "kl": 1.25,
        "effective_share": 0.5,
        "bias": 0.1,
        "bias_low": 0.05,
        "bias_high": 0.15,
        "variance": 0.25,
        "milliseconds": 12.5,
        "timed_examples": 256,
    }
    return {**figures, **changed}


def whole_report() -> dict[str, Any]:
    return {
        "items": 1234,
        "queries": 8,
        "queries_asked": 64,
        "draws": 200,
        "batch_size": 256,
        "full_softmax": {"milliseconds": 99.5, "timed_examples": 32},
        "samplers": [shown_row(), shown_row(sampler="in_batch", negatives=None, candidates=255.6, kl=None)],
        "in_batch_losses": [shown_row(loss="sampled_softmax", batch_size=8192, bias_low=0.0)],
        "skipped": [{"sampler": "mixed", "negatives": "4, 16", "reason": "because [so]."}],
    }


def test_the_tables_show_every_figure_and_what_is_not_measured() -> None:
    """Infinite figures, bounds of a bias that may be none, few queries, and samplers that were left out."""
    check_snapshot("sampler_report.txt", report_table(whole_report(), show_all=True))


FIVE, D, K = 5, 3, 2  # items, numbers of a vector, candidates
SHARP = ScoringConfig(kind="dot", temperature=0.5)
Floats = NDArray[np.float64]


def five_items() -> tuple[Queries, Tensor]:
    random = stream(1, "gradients", 0)
    users = torch.from_numpy(random.normal(size=(2, D))).float()
    vectors = torch.from_numpy(random.normal(size=(FIVE, D))).float()
    return Queries(users, torch.tensor([1, 3]), torch.tensor([0, 0])), vectors


Q = np.array([0.5, 0.25, 0.15, 0.07, 0.03])


def draw_of(ids: NDArray[np.int64], positives: Tensor, q: Floats = Q) -> Draw:
    """Each example's K candidates `ids` [2, K], drawn by q."""
    log_q = torch.from_numpy(np.log(q)).float()
    rows = torch.from_numpy(ids)
    return drawn_from(rows, log_q[rows], log_q[positives], positives)


def gradient(user: Tensor, terms: list[tuple[float, Tensor]], positive: Tensor) -> Tensor:
    """The gradient of log(sum of weight times exp s) - s_y by the user vector."""
    masses = [weight * math.exp(float(user @ vector)) for weight, vector in terms]
    pulled = sum((mass * term[1] for mass, term in zip(masses, terms, strict=True)), torch.zeros(3).double())
    return pulled / sum(masses) - positive


def enumerated_error() -> tuple[float, float]:
    """The relative bias and variance over all N^K draws, each as likely as q says."""
    given, vectors = five_items()
    items = vectors.double()
    squared_bias = variance = length = 0.0
    for user, own in zip(given.users.double() / SHARP.temperature, given.positives.tolist(), strict=True):
        exact = gradient(user, [(1.0, item) for item in items], items[own])
        mean, square = torch.zeros(D).double(), 0.0
        for ids in itertools.product(range(FIVE), repeat=K):
            drawn = [(1.0 / (K * Q[i]), items[i]) for i in ids if i != own]
            found = gradient(user, [(1.0, items[own]), *drawn], items[own])
            chance = math.prod(Q[i] for i in ids)
            mean += chance * found
            square += chance * float(found @ found)
        squared_bias += float((mean - exact).square().sum())
        variance += square - float(mean @ mean)
        length += float(exact @ exact)
    return math.sqrt(squared_bias / length), variance / length


def test_bias_and_variance_are_those_of_all_draws() -> None:
    """400 draws bring the bias within its bounds, here strictly, and the variance within a tenth."""
    given, vectors = five_items()
    random = stream(2, "gradients", 0)

    def draw_once(number: int) -> Draw:
        return draw_of(random.choice(FIVE, p=Q, size=(2, K)), given.positives)

    error = gradient_error(given, vectors, SHARP, draw_once, 400)
    bias, variance = enumerated_error()
    assert bias > 0.1
    assert 0.0 < error["bias_low"] < bias < error["bias_high"]
    assert error["variance"] == pytest.approx(variance, rel=0.1)


def test_a_model_that_is_certain_has_no_gradient_to_compare_with() -> None:
    """The sentence says which settings give it one."""
    given, vectors = five_items()
    certain = Queries(1e4 * vectors[given.positives], given.positives, given.last_items)
    vectors = torch.nn.functional.normalize(vectors, dim=1)
    ids = np.zeros((2, K), np.int64)
    with pytest.raises(TrainingError, match=r"zero gradient for all 2 queries.*--queries"):
        gradient_error(certain, vectors, SHARP, lambda _: draw_of(ids, given.positives), 4)
