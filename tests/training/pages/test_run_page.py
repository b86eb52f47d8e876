import pytest

from tests.training.pages.conftest import MARKUP
from tests.training.pages.pages import Page
from turret.data.prepared import PreparedData
from turret.training.config.named_settings import experiment_toml
from turret.training.errors import TrainingError
from turret.training.pages.run_page import run_page
from turret.training.run import Run


@pytest.fixture(scope="module")
def page(evaluated: Run, shop: PreparedData) -> Page:
    return Page(run_page(evaluated, shop, "test"))


def test_a_page_is_self_contained(page: Page) -> None:
    page.check_self_contained()
    assert "http://" not in page.source
    assert "https://" not in page.source


def test_the_metrics_are_those_of_evaluate_beside_every_baseline(page: Page, evaluated: Run) -> None:
    report = evaluated.metrics()["test"]
    for ranker in ("towers", "popularity", "co_occurrence"):
        for metric in ("hr@10", "ndcg@10", "mrr@10", "ndcg@50"):
            value = report[ranker][metric]
            assert f"{value['mean']:.4f} [{value['low']:.4f}, {value['high']:.4f}]" in page.text
    for values in report["differences"].values():
        value = values["ndcg@10"]
        paired = f"{value['mean']:+.4f} [{value['low']:+.4f}, {value['high']:+.4f}]"
        assert paired.replace("-", "\N{MINUS SIGN}") in page.text
    for name, group in report["slices"].items():
        value = group["towers"]["ndcg@10"]
        shown = f"{name} {group['users']:,} {value['mean']:.4f} [{value['low']:.4f}, {value['high']:.4f}]"
        assert shown in page.text


def test_the_verdict_is_there_and_the_best_step_is_marked(page: Page, evaluated: Run) -> None:
    verdict = evaluated.metrics()["test"]["verdict"]
    sentences = [one["sentence"] for one in verdict if one["kind"] != "baseline"]
    assert sentences
    assert all(sentence.split("`")[0].strip() in page.text for sentence in sentences)
    progress = evaluated.progress()
    assert progress is not None
    assert f"epoch {progress.best_epoch}: {progress.best:.4f}" in page.text


def test_examples_and_nearest_items_have_titles(page: Page, shop: PreparedData) -> None:
    titles = set(shop.fields["title"])
    assert sum(text in titles for text in page.texts) > 100
    assert page.text.count("came next") == 8
    assert page.text.count("training event") >= 12


def test_the_run_can_be_repeated_from_its_page(page: Page, evaluated: Run, shop: PreparedData) -> None:
    settings = experiment_toml(evaluated.experiment, "").split("\n", 1)[1].strip()
    assert settings in page.text
    assert shop.fingerprint in page.text
    assert f"turret train --data {shop.folder.resolve()} --experiment experiment.toml" in page.text
    assert "turret evaluate var/again --baselines popularity,co_occurrence" in page.text


def test_the_same_run_gives_the_same_page(page: Page, evaluated: Run, shop: PreparedData) -> None:
    assert run_page(evaluated, shop, "test") == page.source


def test_another_cut_off_changes_the_metrics(evaluated: Run, shop: PreparedData) -> None:
    text = Page(run_page(evaluated, shop, "test", k=20)).text
    value = evaluated.metrics()["test"]["towers"]["ndcg@20"]
    assert f"ndcg@20, test part {value['mean']:.4f}" in text
    with pytest.raises(TrainingError, match=r"-k 7: the evaluation has k = 10, 20, 50"):
        run_page(evaluated, shop, "test", k=7)


@pytest.mark.filterwarnings("ignore")
def test_markup_in_ids_titles_fields_and_paths_stays_text(hostile: Run) -> None:
    page = Page(run_page(hostile, hostile.open_data(), "test"))
    page.check_self_contained()
    assert page.tags.count("style") == 1
    assert not {"i", "b", "u"} & set(page.tags)
    assert MARKUP in page.text
    assert "<i>u" in page.text
    assert "<u>run" in page.text
