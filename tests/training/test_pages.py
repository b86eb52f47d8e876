"""The pages of `turret report run` and `turret report compare`."""

import base64
import hashlib
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tests.training.conftest import QUICK, trained
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.training.cli import app
from turret.training.comparison.compare import compare
from turret.training.config.experiment import experiment_toml, load_experiment, with_settings
from turret.training.errors import TrainingError
from turret.training.page.pages import compare_page, evaluated_report, run_page, write_page
from turret.training.page.recommended import ITEMS, NEAREST, nearest_items
from turret.training.run import Run

# Elements that run something, and those that load something.
ACTIVE = {"script", "iframe", "object", "embed", "base", "form"}
LOADING = {"link", "audio", "video", "use", "image"}


class Page(HTMLParser):
    """The tags, the attributes and the texts of a page."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        if data.strip() and self.lasttag != "style":
            self.texts.append(data.strip())

    @property
    def text(self) -> str:
        """All texts, in order."""
        return " ".join(" ".join(self.texts).split())

    def check_self_contained(self) -> None:
        """Assert that the page loads nothing, runs nothing, and leads nowhere else."""
        assert not (ACTIVE | LOADING) & set(self.tags)
        for tag, name, value in self.attributes:
            assert not name.startswith("on"), (tag, name)
            assert name not in ("srcset", "style", "xlink:href", "action"), (tag, name)
            if name == "href":
                assert value.startswith("#"), value
            if name == "src":
                assert value.startswith("data:image/svg+xml;base64,"), (tag, value)


MARKUP = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'></style>&amp;"


@pytest.fixture(scope="session")
def other(evaluated: Run, shop: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of one epoch on the shop, not evaluated yet. Only `turret report compare` may write to it."""
    folder = tmp_path_factory.mktemp("other") / "other"
    changed = with_settings(evaluated.experiment, {"training.epochs": 1, "training.seed": 3})
    return trained(folder, shop, changed)[0]


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on a log whose ids, titles, fields and folders are markup."""
    folder = tmp_path_factory.mktemp("hostile") / "<b>raw&"
    (folder / "raw").mkdir(parents=True)
    quoted = MARKUP.replace('"', '""')
    items = [f'"{quoted} {number}"' for number in range(12)]
    rows = [
        f'"<i>u{user}{quoted}",{items[(user + step * (1 + user % 3)) % 12]},{step}'
        for user in range(30)
        for step in range(8)
    ]
    (folder / "raw" / "events.csv").write_text("\n".join(["user_id,item_id,order", *rows]) + "\n")
    described = [f"{item},{item},{item}" for item in items]
    (folder / "raw" / "items.csv").write_text("\n".join(["item_id,title,genre", *described]) + "\n")
    settings = {"source": folder / "raw", "columns": {"time": "order"}, "fields": ["title", "genre"]}
    prepare(PrepareConfig.model_validate(settings), folder / "prepared")
    data = PreparedData.open(folder / "prepared")
    return trained(folder / "<u>run", data, load_experiment("ids", [*QUICK, "training.epochs=1"]))[0]


@pytest.fixture(scope="module")
def run_parts(evaluated: Run, shop: PreparedData) -> Page:
    return Page(run_page(evaluated, shop, "test"))


def test_a_page_allows_its_own_stylesheet_and_drawings_and_nothing_else(run_parts: Page) -> None:
    """The hash is that of the text between the tags, as a browser computes it."""
    run_parts.check_self_contained()
    (style,) = re.findall(r"<style>(.*?)</style>", run_parts.source, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', run_parts.source)
    assert policy.replace("&#39;", "'") == (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def interval(value: dict[str, float], sign: str = "") -> str:
    """A figure with its interval, as pages show it; a difference with its sign."""
    return f"{value['mean']:{sign}.4f} [{value['low']:{sign}.4f}, {value['high']:{sign}.4f}]"


def test_the_metrics_are_those_of_evaluate_beside_every_baseline(run_parts: Page, evaluated: Run) -> None:
    report = evaluated.metrics()["test"]
    for ranker in ("towers", "popularity", "co_occurrence"):
        for metric in ("hr@10", "ndcg@50"):
            assert interval(report[ranker][metric]) in run_parts.text
    for values in report["differences"].values():
        assert interval(values["ndcg@10"], "+") in run_parts.text
    for name, group in report["slices"].items():
        assert f"{name} {group['users']:,} {interval(group['towers']['ndcg@10'])}" in run_parts.text


def test_the_run_can_be_repeated_from_its_page(run_parts: Page, evaluated: Run, shop: PreparedData) -> None:
    settings = experiment_toml(evaluated.experiment, "").split("\n", 1)[1].strip()
    assert settings in "\n".join(run_parts.texts)
    assert shop.fingerprint in run_parts.text
    assert f"turret train --data {shop.folder.resolve()} --experiment experiment.toml" in run_parts.text
    assert "turret evaluate var/again --baselines popularity,co_occurrence" in run_parts.text


@pytest.mark.filterwarnings("ignore")
def test_markup_in_ids_titles_fields_and_paths_stays_text(hostile: Run) -> None:
    run_parts = Page(run_page(hostile, hostile.open_data(), "test"))
    run_parts.check_self_contained()
    assert run_parts.tags.count("style") == 1
    assert not {"i", "b", "u"} & set(run_parts.tags)
    assert MARKUP in run_parts.text
    assert "<i>u" in run_parts.text
    assert "<u>run" in run_parts.text


@pytest.fixture(scope="module")
def compare_parts(evaluated: Run, other: Run) -> Page:
    """The other run is evaluated on the way."""
    return Page(compare_page([evaluated.folder, other.folder], None, "test"))


def test_the_figures_are_those_of_turret_compare(compare_parts: Page, evaluated: Run, other: Run) -> None:
    compare_parts.check_self_contained()
    report = compare([evaluated.folder, other.folder], "test")
    for run in report["runs"]:
        assert interval(run["metrics"]["ndcg@10"]) in compare_parts.text
    assert interval(report["runs"][1]["difference"]["ndcg@10"], "+") in compare_parts.text


def test_runs_that_cannot_be_compared_are_refused_in_a_sentence(evaluated: Run, hostile: Run) -> None:
    with pytest.raises(TrainingError, match=r"were trained on different data .*; name runs on the same data"):
        compare_page([evaluated.folder, hostile.folder], None, "test")
    with pytest.raises(TrainingError, match="-k 3: the evaluation has k = 10, 20, 50"):
        compare_page([evaluated.folder] * 2, None, "test", k=3)


def test_a_page_that_can_not_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainingError, match=r"--output .* it can't be written"):
        write_page(tmp_path / "file" / "report.html", str)


@pytest.fixture
def folder(evaluated: Run, tmp_path: Path) -> Path:
    return shutil.copytree(evaluated.folder, tmp_path / "run")


def test_the_command_line_gives_every_option(folder: Path, other: Run, tmp_path: Path) -> None:
    one, two = str(tmp_path / "one.html"), tmp_path / "pages" / "two.html"
    options = ["-k", "20", "--part", "validation", "--baselines", "item_knn", "--output", one]
    done = CliRunner().invoke(app, ["report", "run", str(folder), *options])
    assert (done.exit_code, done.output.splitlines()[-1]) == (0, one)
    written = Path(one).read_text("utf-8")
    assert "ndcg@20, validation part" in written
    assert "item-kNN" in written
    runs = [str(folder), str(other.folder)]
    done = CliRunner().invoke(app, ["report", "compare", *runs, "-k", "20", "--output", str(two)])
    assert (done.exit_code, done.output.splitlines()[-1]) == (0, str(two))
    assert "ndcg@20 on the test part" in two.read_text("utf-8")


def test_the_nearest_items_are_those_of_the_largest_cosine(evaluated: Run, shop: PreparedData) -> None:
    popularity, model = shop.item_counts("train"), evaluated.open_model(shop)
    popular, rare = nearest_items(model, popularity, seed=0).values()
    assert [one["row"] for one in popular] == np.argsort(-popularity, kind="stable")[:ITEMS].tolist()
    with torch.no_grad():
        vectors = model.catalog_vectors()
    plain = (vectors[:, :-1] if model.config.scoring.item_bias else vectors).double()
    for one in popular + rare:
        cosines = plain @ plain[one["row"]]
        cosines[one["row"]] = -torch.inf
        rows, similarities = zip(*one["nearest"], strict=True)
        assert similarities == pytest.approx(
            cosines.sort(descending=True).values[:NEAREST].tolist(), abs=1e-5
        )
        assert one["row"] not in rows
        assert one["events"] == popularity[one["row"]]


def test_a_stored_report_is_not_measured_again(
    folder: Path, shop: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for another part, or a baseline that it lacks."""
    run = Run.read(folder)
    assert "item_knn" in evaluated_report(run, shop, "validation", ["item_knn"])["differences"]
    monkeypatch.delattr(Run, "evaluate")
    assert evaluated_report(run, shop, "test", ["co_occurrence"]) == run.metrics()["test"]
