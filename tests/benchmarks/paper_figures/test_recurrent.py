from pathlib import Path
from typing import Any

from benchmarks.paper_figures.contract import Scale
from benchmarks.paper_figures.estimator_curves import IMPORTANCE, STANDARD
from benchmarks.paper_figures.language_model import Schedule
from benchmarks.paper_figures.recurrent import (
    ALPHAS,
    Size,
    claims,
    runs,
    table,
    trained,
)
from benchmarks.paper_figures.words import generated
from benchmarks.softmax_regression import EXACT, estimators

NAMES = list(estimators(10))


def results(**curves: list[float]) -> dict[str, Any]:
    """Held-out cross-entropies at both alphas: `standard`, `importance`, and 2 at the end for the others."""
    made = {EXACT: {"cross_entropy": [5.0, 3.0, 1.0]}}
    for alpha in ALPHAS:
        for name in NAMES:
            made[f"alpha = {alpha:g}: {name}"] = {"cross_entropy": [5.0, 3.0, 2.0]}
        made[f"alpha = {alpha:g}: {STANDARD}"] = {"cross_entropy": curves["standard"]}
        made[f"alpha = {alpha:g}: {IMPORTANCE}"] = {"cross_entropy": curves["importance"]}
    return made


def test_the_statements_hold_where_standard_sampling_alone_is_unstable() -> None:
    """A rise of .05 nats, and an end as low as the best of the alternatives."""
    made = results(standard=[5.0, 3.0, 3.2], importance=[5.0, 3.0, 2.01])
    assert [claim.agrees for claim in claims(made)] == [True, True]


def test_each_statement_can_fail() -> None:
    """A stable standard estimate; an end 3 % above the best."""
    made = results(standard=[5.0, 3.0, 3.0], importance=[5.0, 3.0, 2.03])
    assert [claim.agrees for claim in claims(made)] == [False, False]


def test_every_estimator_is_trained_at_both_alphas(tmp_path: Path) -> None:
    """And once exactly; the table has a column an alpha."""
    assert len(runs(Scale(tmp_path, quick=True))) == 1 + 2 * len(NAMES)
    made = results(standard=[5.0, 3.0, 3.2], importance=[5.0, 3.0, 2.0])
    assert all(line.count("|") == 4 for line in table(made))


def test_a_training_begins_with_log_probabilities() -> None:
    """Scores that noise contrastive estimation need not normalise first, and that get better."""
    text = generated(40, 2_000, seed=0)
    size = Size(40, 2_000, 6, 8, Schedule(epochs=1, checks=1, rows=4, steps=8))
    result = trained(text, size, "noise contrastive estimation", 1.0)
    assert result["cross_entropy"][1] < result["cross_entropy"][0] < 3.8
