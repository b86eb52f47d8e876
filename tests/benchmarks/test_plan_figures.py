"""The figures that `turret plan` installs are those of the results."""

import json

from benchmarks.plan_figures import TARGET, plan_figures


def test_the_installed_figures_are_those_of_the_last_results() -> None:
    assert TARGET.read_text(encoding="utf-8") == plan_figures(), "run `python -m benchmarks.plan_figures`"


def test_every_fit_is_near_its_points() -> None:
    """A model that does not describe the measured points would not describe others."""
    figures = json.loads(TARGET.read_text(encoding="utf-8"))["quantities"]
    assert {name: one["worst_error"] for name, one in figures.items() if one["worst_error"] > 0.35} == {}
