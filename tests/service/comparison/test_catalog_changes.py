from collections.abc import Callable

import orjson

from turret.service.comparison.catalog_changes import EXAMPLES, catalog_changes
from turret.service.comparison.side import Side

MakeSide = Callable[..., Side]


def nothing() -> None:
    pass


def test_a_catalog_does_not_differ_from_itself(make_side: MakeSide) -> None:
    bundle = make_side("v1").model.bundle
    assert catalog_changes(bundle, bundle, nothing) == {
        "added": 0,
        "removed": 0,
        "kept": 60,
        "changed_fields": 0,
        "added_examples": [],
        "removed_examples": [],
    }


def test_items_are_added_and_removed(make_side: MakeSide) -> None:
    live, other = make_side("v1").model.bundle, make_side("v2", ids=range(105, 180)).model.bundle
    found = catalog_changes(live, other, nothing)
    assert [found[name] for name in ("added", "removed", "kept")] == [20, 5, 55]
    removed = orjson.loads(orjson.dumps(found["removed_examples"]))
    assert {item["id"] for item in removed} == {100, 101, 102, 103, 104}
    assert removed[0]["fields"] == live.catalog.of(live.vocabulary.row(removed[0]["id"]) or 0)
    events = [other.popularity[other.vocabulary.row(item["id"])] for item in found["added_examples"]]
    assert len(events) == EXAMPLES
    assert events == sorted(events, reverse=True)


def test_ids_that_have_become_texts_are_the_same_items(make_side: MakeSide) -> None:
    live = make_side("v1").model.bundle
    other = make_side("v2", ids=[str(item) for item in range(100, 160)]).model.bundle
    assert catalog_changes(live, other, nothing)["kept"] == 60
