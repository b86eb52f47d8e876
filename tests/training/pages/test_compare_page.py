import pytest

from tests.training.pages.pages import Page
from turret.training.comparison.compare import compare
from turret.training.errors import TrainingError
from turret.training.inspection.compared import compared
from turret.training.pages.compare_page import compare_page
from turret.training.run import Run


@pytest.fixture(scope="module")
def page(evaluated: Run, other: Run) -> Page:
    """The other run is evaluated on the way."""
    return Page(compare_page(compared([evaluated.folder, other.folder], None, "test")))


def test_the_figures_are_those_of_turret_compare(page: Page, evaluated: Run, other: Run) -> None:
    page.check_self_contained()
    report = compare([evaluated.folder, other.folder], "test")
    for run in report["runs"]:
        for metric in ("hr@10", "ndcg@10", "mrr@10"):
            value = run["metrics"][metric]
            assert f"{value['mean']:.4f} [{value['low']:.4f}, {value['high']:.4f}]" in page.text
    value = report["runs"][1]["difference"]["ndcg@10"]
    paired = f"{value['mean']:+.4f} [{value['low']:+.4f}, {value['high']:+.4f}]"
    assert paired.replace("-", "\N{MINUS SIGN}") in page.text


def test_curves_lie_over_one_another_and_settings_differ(page: Page) -> None:
    assert page.text.count("1: run") >= 3
    assert {"line c1", "line c2"} <= {value for _, name, value in page.attributes if name == "class"}
    assert "training.epochs 2 1" in page.text
    assert "training.seed 0 3" in page.text


def test_slices_of_all_users_are_the_comparison(evaluated: Run, other: Run) -> None:
    """The mean over slices of history lengths, weighted by their users, is that over all users."""
    found = compared([evaluated.folder, other.folder], None, "test")
    slices = [one for one in found.slices("ndcg@10") if one.name.startswith("history")]
    users = sum(one.users for one in slices)
    for number, run in enumerate(found.report["runs"]):
        means = [one.users * (one.metrics[number] or {"mean": 0.0})["mean"] for one in slices]
        assert sum(means) / users == pytest.approx(run["metrics"]["ndcg@10"]["mean"])
    gains = [one.users * (one.differences[1] or {"mean": 0.0})["mean"] for one in slices]
    assert sum(gains) / users == pytest.approx(found.report["runs"][1]["difference"]["ndcg@10"]["mean"])


def test_a_run_beside_itself_differs_nowhere(evaluated: Run) -> None:
    text = Page(compare_page(compared([evaluated.folder] * 2, None, "test"))).text
    assert "is not clearly different from run 1" in text
    assert "The runs have the same settings." in text


def test_runs_that_cannot_be_compared_are_refused_in_a_sentence(evaluated: Run, hostile: Run) -> None:
    with pytest.raises(TrainingError, match="needs at least two runs: turret report compare RUN RUN"):
        compared([evaluated.folder], None, "test")
    with pytest.raises(TrainingError, match=r"were trained on different data .*; name runs on the same data"):
        compared([evaluated.folder, hostile.folder], None, "test")
    with pytest.raises(TrainingError, match="-k 3: the evaluation has k = 10, 20, 50"):
        compare_page(compared([evaluated.folder] * 2, None, "test"), k=3)
