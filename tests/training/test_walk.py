"""CONTRIBUTING.md lists the functions from a CSV to a gradient: each is where it says."""

import re
from importlib import import_module
from operator import attrgetter

from tests.support.places import ROOT


def test_the_listed_functions_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    part = text.partition("### The path of a history")[2].partition("\n### ")[0]
    stops = re.findall(r"^\d+\. (?:`([\w/]+)\.py` )?`([\w.]+)`", part, re.MULTILINE)
    assert len(stops) > 30
    file = ""
    for named, function in stops:
        file = named or file
        assert callable(attrgetter(function)(import_module(f"turret.{file.replace('/', '.')}")))
