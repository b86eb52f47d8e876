from turret.training.inspection.item_names import NamedItem
from turret.training.pages.shown import (
    item_name,
    main_metric_at,
    metrics_at_k,
    ranker_title,
    sentences,
    with_code,
)

NAMES = ["hr@1", "ndcg@1", "hr@10", "ndcg@10", "coverage@10", "auc"]


def test_the_metrics_of_a_cut_off_are_named_and_the_auc_has_none() -> None:
    assert metrics_at_k(NAMES, 10) == ["hr@10", "ndcg@10", "auc"]
    assert metrics_at_k(NAMES, 1) == ["hr@1", "ndcg@1", "auc"]


def test_the_main_metric_is_that_of_training_at_the_cut_off() -> None:
    assert main_metric_at(NAMES, "hr@10", 1) == "hr@1"
    assert main_metric_at(NAMES, "mrr@10", 1) == "ndcg@1"
    assert main_metric_at(NAMES, "auc", 1) == "auc"
    assert main_metric_at(["ndcg@1"], "auc", 1) == "ndcg@1"


def test_words_between_backquotes_are_code_and_text_stays_text() -> None:
    assert with_code("run `turret <x>` now & `") == "run <code>turret &lt;x&gt;</code> now &amp; `"
    made = sentences([{"sentence": "One."}, {"sentence": "<Two>."}])
    assert made == '<ul class="findings"><li>One.</li><li>&lt;Two&gt;.</li></ul>'


def test_an_item_is_shown_by_its_title_or_by_its_id() -> None:
    assert ">Heat<" in item_name(NamedItem(7, "Heat", "drama", "drama · 1995"))
    assert "7 · drama · 1995" in item_name(NamedItem(7, "Heat", "drama", "drama · 1995"))
    assert " drama</span>" in item_name(NamedItem(7, "Heat", "drama", ""), with_detail=True)
    assert item_name(NamedItem(7, None, "", "")) == '<span class="item" title="7">7</span>'


def test_a_ranker_of_a_package_that_is_gone_keeps_its_name() -> None:
    assert [ranker_title(name) for name in ("towers", "ease", "gone")] == ["this run", "EASE", "gone"]
