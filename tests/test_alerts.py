"""The alerts and the dashboard ask for metrics that the service exports."""

import re

import pytest
import yaml

from benchmarks.docs import exported
from tests.support.places import ROOT

PARTS = ("bucket", "sum", "count")  # of a histogram


@pytest.mark.parametrize("name", ["alerts.yml", "dashboard.json"])
def test_expressions_ask_for_metrics_that_exist(name: str) -> None:
    content = yaml.safe_load((ROOT / "deploy" / "observing" / name).read_text("utf-8"))  # JSON is YAML
    parts = content["groups"][0]["rules"] if name == "alerts.yml" else content["panels"]
    targets = [target for part in parts for target in part.get("targets", [part])]
    asked = {metric for target in targets for metric in re.findall(r"turret_\w+", target["expr"])}
    known = {metric for family in exported() for metric in (family, *(f"{family}_{part}" for part in PARTS))}
    assert asked
    assert asked <= known
