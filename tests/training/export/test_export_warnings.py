"""Each sentence of an export, in a case with it and in one without it."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from turret.training.checkpoint import Progress
from turret.training.config.experiment import load_experiment
from turret.training.export.export_warnings import export_warnings
from turret.training.run import Run


@dataclass(frozen=True)
class KnownRun(Run):
    """A run whose reports and progress are given."""

    reports: dict[str, Any] = field(default_factory=dict)
    made: Progress | None = None

    def metrics(self) -> dict[str, Any]:
        return self.reports

    def progress(self) -> Progress | None:
        return self.made


def report(low: float, high: float, part: str = "test") -> dict[str, Any]:
    interval = {"mean": (low + high) / 2, "low": low, "high": high}
    means = {"towers": {"ndcg@10": {"mean": 0.02}}, "popularity": {"ndcg@10": {"mean": 0.03}}}
    return {"part": part, **means, "differences": {"popularity": {"ndcg@10": interval}}}


RUN = KnownRun(
    Path("var/run"), load_experiment("demo"), Path("data"), "f", reports={"test": report(-0.001, 0.002)}
)


def test_an_evaluated_model_that_is_not_clearly_worse_has_no_warning() -> None:
    assert list(export_warnings(RUN)) == []


def test_a_model_that_was_never_evaluated_is_said() -> None:
    (sentence,) = export_warnings(replace(RUN, reports={}))
    assert sentence.startswith("This model was never evaluated; `turret evaluate var/run`")


def test_a_model_that_lost_against_popularity_is_said() -> None:
    lost = replace(RUN, reports={"validation": report(0.001, 0.002), "test": report(-0.02, -0.001)})
    assert list(export_warnings(lost)) == [
        "This model is worse than popularity on the test part: ndcg@10 is 0.0200 against 0.0300, 95 % "
        "interval of the difference [-0.0200, -0.0010]."
    ]
    (sentence,) = export_warnings(replace(RUN, reports={"validation": report(-0.2, -0.1, "validation")}))
    assert "on the validation part" in sentence


def test_a_report_of_an_earlier_release_has_no_differences() -> None:
    old = {name: value for name, value in report(-0.02, -0.01).items() if name != "differences"}
    assert list(export_warnings(replace(RUN, reports={"test": old}))) == []


def test_a_warm_start_that_improved_nothing_is_said() -> None:
    warm = replace(RUN, origin=Path("var/bundles/spring"))
    unimproved = Progress(epoch=3, best=0.1, best_epoch=0)
    (sentence,) = export_warnings(replace(warm, made=unimproved))
    assert "no epoch was better on the validation part than the bundle spring" in sentence
    unmeasured = Progress(epoch=3)
    for other in (
        replace(warm, made=Progress(epoch=3, best=0.1, best_epoch=1)),
        replace(warm, made=unmeasured),
        warm,
    ):
        assert list(export_warnings(other)) == []
    assert list(export_warnings(replace(RUN, made=unimproved))) == []
