"""A kind of features of another package, from CSV files to answers over HTTP."""

from pathlib import Path

import pytest

from tests.support.plugin import install, run_with

WEEKDAY = '''
"""The day of the week of a date, as a point on a circle: Sunday is as near to Monday as Monday to Tuesday."""

import math

import numpy as np

from turret.data.features.feature import Feature, FeatureKind
from turret.data.moments import parse_moment


class Weekday(FeatureKind):
    name = "weekday"
    reading = "numbers"
    form = "vector"
    noun = "numbers"

    def fit(self, name, raw, shared):
        return Feature(name=name, kind=self.name, width=2)

    def read(self, feature, text):
        moment = parse_moment(text)
        return text if moment is None else moment / 86_400_000

    def encode(self, feature, raw):
        if raw is None:
            return np.full(2, np.nan, dtype=np.float32)
        if isinstance(raw, bool) or not isinstance(raw, int | float):
            raise feature.invalid(raw)
        angle = 2 * math.pi * (raw % 7) / 7
        return np.array([math.cos(angle), math.sin(angle)], dtype=np.float32)

    def decode(self, feature, code):
        return None if np.isnan(code[0]) else round(math.atan2(code[1], code[0]) / (2 * math.pi) * 7) % 7

    def fits(self, feature):
        return "a date such as 2024-05-01"
'''
# Users buy what was listed on one day of the week, and each item is bought by few.
SHOP = """
import datetime, random, sys
from pathlib import Path
from tests.support.service_app import recommended, serving
from turret.cli import main
import turret

draw, day = random.Random(0), datetime.date(2024, 1, 1)
listed = {item: day + datetime.timedelta(days=item) for item in range(140)}
Path("items.csv").write_text("item_id,listed\\n" + "".join(f"{i},{d}\\n" for i, d in listed.items()))
rows = [
    (user, item, 1_700_000_000 + 60 * step)
    for user in range(210)
    for step, item in enumerate(draw.sample(range(user % 7, 140, 7), 6))
]
lines = (f"{user},{item},{time}\\n" for user, item, time in rows)
Path("events.csv").write_text("user_id,item_id,timestamp\\n" + "".join(lines))
joined = (f"{user},{listed[user % 7]}\\n" for user in range(210))
Path("users.csv").write_text("user_id,joined\\n" + "".join(joined))

def run(words):
    sys.argv[1:] = words.split()
    try:
        main()
    except SystemExit as end:
        assert not end.code, words

run("data prepare events.csv --items items.csv --users users.csv --item-other weekday=listed "
    "--user-other weekday=joined --to prepared")
run("data describe prepared")
settings = {"training.epochs": 15, "training.batch_size": 64, "training.learning_rate": 0.01,
    "tower.dimension": 16, "training.device": "cpu", "objective": {"loss": "full_softmax"},
    "tower.item.features": ["listed"], "tower.item.id": False, "tower.user.features": ["joined"]}
turret.train("prepared", "run", experiment="youtubednn", settings=settings).export("bundles", "v1")
with serving(Path("bundles")) as client:
    answer = recommended(client, history=[3, 10], features={"joined": "2024-01-04"}, k=15)
    assert {item["id"] % 7 for item in answer["items"]} == {3}, answer
    put = client.put("/v1/items/1000", json={"features": {"listed": "2031-01-02"}})  # a Thursday, as item 3
    assert put.status_code == 200, put.text
    found = recommended(client, history=[3, 10], features={"joined": "2024-01-04"}, k=30)
    assert 1000 in [item["id"] for item in found["items"]][:21], found
    for wrong in ("soon", True, ["2024-01-04"]):
        refused = client.post("/v1/recommend", json={"history": [3], "features": {"joined": wrong}})
        assert refused.status_code == 422
        assert "a date such as 2024-05-01" in refused.json()["error"]["message"], refused.text
named = turret.load("bundles").recommend([3, 10], 15, features={"joined": "2024-01-04"})
assert [one.id for one in named] == [item["id"] for item in answer["items"]]
"""


@pytest.mark.process
def test_a_package_adds_a_kind_in_one_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user of it would: prepared by an option, trained, put as a new item, and refused in its words."""
    install(tmp_path, "weekdays", WEEKDAY, {"turret.feature_kinds": "weekday = weekdays:Weekday"})
    monkeypatch.chdir(tmp_path)
    run = run_with(tmp_path, SHOP)
    assert run.returncode == 0, run.stderr
    assert "listed (weekday, 2 numbers)" in run.stdout
