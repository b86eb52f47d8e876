"""The alerts and the dashboard ask for metrics that the service exports."""

import json
import re
from pathlib import Path

import pytest
import yaml

from benchmarks.docs import exported
from tests.support.places import ROOT

OBSERVING = ROOT / "deploy" / "observing"
ALERTS = OBSERVING / "alerts.yml"
PARTS = ("bucket", "sum", "count")  # of a histogram


def expressions(path: Path) -> list[str]:
    if path == ALERTS:
        return [rule["expr"] for rule in yaml.safe_load(path.read_text("utf-8"))["groups"][0]["rules"]]
    return [
        target["expr"]
        for panel in json.loads(path.read_text("utf-8"))["panels"]
        for target in panel["targets"]
    ]


@pytest.mark.parametrize("path", [ALERTS, OBSERVING / "dashboard.json"], ids=lambda path: path.name)
def test_expressions_ask_for_metrics_that_exist(path: Path) -> None:
    asked = {name for expression in expressions(path) for name in re.findall(r"turret_\w+", expression)}
    known = {name for family in exported() for name in (family, *(f"{family}_{part}" for part in PARTS))}
    assert asked
    assert asked <= known
