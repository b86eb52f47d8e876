"""The catalog of a bundle, its columns, and filters against what they mean for one item at a time."""

import json
from itertools import chain
from pathlib import Path
from sys import getsizeof
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles.filtering import holds
from tests.support.memory_engine import met
from turret.tower.catalog import columns
from turret.tower.catalog.catalog import Catalog
from turret.tower.catalog.columns import ItemColumns
from turret.tower.catalog.conditions import Not, Under, every
from turret.tower.catalog.filters import MAX_CONDITIONS, MAX_DEPTH, MAX_VALUES, Filter, compile_filter
from turret.tower.catalog.masks import MASK_BYTES
from turret.tower.engines.engine import EngineItems
from turret.tower.engines.fields import engine_fields, where_of
from turret.tower.errors import BundleError, FilterError

STORED: dict[str, list[Any]] = {"title": ["É", None], "genres": [["a"], []], "year": [float("nan"), 3]}


def test_fields_come_back_by_row_as_json_that_is_ready_to_be_sent(tmp_path: Path) -> None:
    Catalog.build(["x", 'y"'], STORED).save(tmp_path)
    catalog = Catalog.load(tmp_path, 2)
    assert catalog.of(0) == {"title": "É", "genres": ["a"], "year": None}, "JSON has no NaN"
    assert catalog.json_of(1) == b'{"title":null,"genres":[],"year":3}'
    assert catalog.item_json(1) == b'"id":"y\\"","fields":{"title":null,"genres":[],"year":3}'
    assert catalog.kinds == {"title": "text", "genres": "texts", "year": "number"}
    with pytest.raises(BundleError, match="there is no section 'starts' of 4 int64"):
        Catalog.load(tmp_path, 3)
    (tmp_path / "catalog.json").write_text("{}")
    with pytest.raises(BundleError, match="is not the head of a catalog"):
        Catalog.load(tmp_path, 2)


@pytest.mark.parametrize(
    ("section", "position", "value"),
    [
        ("starts", 0, 1),
        ("starts", 1, -1),
        ("starts", 1, 1 << 40),
        ("starts", 2, 1 << 62),
        ("field_starts", 0, -5),
        ("field_starts", 0, 1 << 40),
        ("0.word_starts", 0, -1),
        ("0.word_starts", 1, 1 << 40),
        ("0.starts", 1, 7),
        ("1.starts", 0, 1),
        ("1.starts", 1, -(1 << 63)),
        ("1.rows", 0, 2),
        ("1.rows", 0, -1),
    ],
)
def test_a_catalog_whose_parts_lie_elsewhere_is_refused(
    tmp_path: Path, section: str, position: int, value: int
) -> None:
    """Each would be a slice of other bytes, or an error in each answer."""
    Catalog.build(["x", "y"], STORED).save(tmp_path)
    head, body = json.loads((tmp_path / "catalog.json").read_text()), tmp_path / "catalog.bin"
    one = head["sections"][section]
    content = bytearray(body.read_bytes())
    np.frombuffer(content, one["dtype"], one["length"], one["offset"])[position] = value
    body.write_bytes(content)
    with pytest.raises(BundleError, match=f"catalog.bin: section '{section}' .*; export the bundle again"):
        Catalog.load(tmp_path, 2)


def test_a_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(BundleError, match="title"):
        Catalog.build([1], {"title": ["\ud800"]})


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2.5, None, float("nan")], "number"),
        ([True, None], "boolean"),
        (["a", None], "text"),
        ([["a"], [], None, "b"], "texts"),
        ([[1, 2.0], None], "numbers"),
        ([1, "a"], "mixed"),
        ([{"a": 1}], "mixed"),
        ([10**400], "mixed"),
        ([None, [], float("inf")], "none"),
    ],
)
def test_the_kind_of_a_field_is_that_of_all_its_values(values: list[Any], kind: str) -> None:
    catalog = Catalog.build(range(len(values)), {"field": values})
    assert catalog.kinds == {"field": kind}
    present = [one not in (None, [], float("inf")) and one == one for one in values]
    assert catalog.column("field").present().tolist() == present


COUNTRIES, TAGS, NUMBERS = (
    ["nl", "de", "É", ""],
    ["a", "a > b", "b/c", " a|b /c", "a >", "a > !"],
    [-1, 0, 0.5, 2, 1e300],
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "country": st.none() | st.sampled_from(COUNTRIES),
    "year": st.none() | st.sampled_from([*NUMBERS, float("nan")]),
    "tags": st.none() | st.lists(st.sampled_from(TAGS), max_size=3),
    "scores": st.none() | st.lists(st.sampled_from(NUMBERS), max_size=3),
    "is_new": st.none() | st.booleans(),
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "country": st.sampled_from([*COUNTRIES, "xx"]),
    "year": st.sampled_from([*NUMBERS, 7]),
    "tags": st.sampled_from([*TAGS, "z"]),
    "scores": st.sampled_from([*NUMBERS, 7]),
    "is_new": st.booleans(),
}


def operators(name: str) -> st.SearchStrategy[Any]:
    values = VALUES[name]
    several = st.lists(values, max_size=3)
    bounds = {} if name == "is_new" else dict.fromkeys(("gte", "gt", "lte", "lt"), values)
    others = {"equals": values, "any_of": several, "none_of": several, "not_null": st.booleans()}
    if name in ("country", "tags"):
        others["under"] = values.filter(bool)
    return st.fixed_dictionaries({}, optional={**others, **bounds}).filter(bool)


CONDITIONS = st.sampled_from(sorted(FIELDS)).flatmap(
    lambda name: operators(name).map(lambda asked: {name: asked})
)
FILTERS = st.recursive(
    CONDITIONS | st.just({}),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda parts: {"all": parts})
        | st.lists(inner, max_size=3).map(lambda parts: {"any": parts})
        | inner.map(lambda part: {"not": part})
        | st.tuples(CONDITIONS, inner).map(lambda parts: {**parts[0], **parts[1]})
    ),
    max_leaves=6,
)
# The first item has a value in each field, so that each field has a type.
WHOLE = {"country": "nl", "year": 2, "tags": ["a"], "scores": [0.5], "is_new": True}
ITEMS = st.lists(st.fixed_dictionaries(FIELDS), max_size=8).map(lambda items: [WHOLE, *items])


def catalog_of(items: list[dict[str, Any]]) -> Catalog:
    return Catalog.build(list(range(len(items))), {name: [one[name] for one in items] for name in FIELDS})


def allowed_by(compiled: Filter) -> list[bool]:
    """The rows of the catalog that a filter allows, and a vector engine that is asked for them."""
    catalog = compiled.catalog
    allowed: list[bool] = compiled.allowed().mask.tolist()
    where = where_of(compiled.condition, catalog)
    items = EngineItems(np.zeros((len(catalog), 2), dtype=np.float32), engine_fields(catalog))
    assert where is not None
    assert met(where, items).tolist() == allowed
    return allowed


@given(ITEMS, FILTERS)
def test_the_allowed_rows_are_those_that_the_filter_is_true_of(
    items: list[dict[str, Any]], asked: dict[str, Any]
) -> None:
    """In the catalog, on a vector engine, and of items beside the catalog."""
    compiled = compile_filter(asked, catalog_of(items))
    expected = [holds(asked, item) for item in items]
    assert allowed_by(compiled) == expected
    assert compiled.allowed().count == sum(expected)
    assert compiled.condition.mask(ItemColumns(FIELDS, items)).tolist() == expected


def test_a_range_of_very_many_texts_is_not_sent_to_an_engine() -> None:
    catalog = Catalog.build(range(3000), {"name": [f"n{row:04d}" for row in range(3000)]})
    few, many = {"name": {"lt": "n0500"}}, {"name": {"lt": "n2500"}}
    assert where_of(compile_filter(few, catalog).condition, catalog) is not None
    for asked in (many, {"not": many}, {"any": [few, many]}):
        assert where_of(compile_filter(asked, catalog).condition, catalog) is None


@pytest.fixture
def catalog() -> Catalog:
    fields: dict[str, list[Any]] = {
        "year": [1990, 2000, None, 2010],
        "genres": [["drama"], ["drama", "war"], [], None],
        "odd": [1, "one", None, {"a": 1}],
        "empty": [None] * 4,
        "is_new": [True, False, None, True],
        "path": ["Women > Shoes > Boots", ["Women/Bags", "Sale"], "Women's", None],
    }
    return Catalog.build(["a", "b", "c", "d"], fields)


@pytest.mark.parametrize(
    ("asked", "rows"),
    [
        ({}, [0, 1, 2, 3]),
        ({"odd": {"not_null": True}}, [0, 1, 3]),
        ({"empty": {"equals": "x"}}, []),
        ({"year": {"equals": 1990}, "not": {"year": {"equals": 1990}}}, []),
        ({"path": {"under": "Women"}}, [0, 1]),
        ({"path": {"under": "Women > Shoes >"}}, [0]),
        ({"path": {"under": "Women > Shoes"}, "year": {"gte": 1991}}, []),
        ({"path": {"under": "Women>Shoes"}}, [0]),
        ({"path": {"under": " Women / Bags"}}, [1]),
        ({"empty": {"under": "Women"}}, []),
    ],
)
def test_each_form_of_filter_allows_its_rows(
    catalog: Catalog, asked: dict[str, Any], rows: list[int]
) -> None:
    assert np.flatnonzero(allowed_by(compile_filter(asked, catalog))).tolist() == rows


@pytest.mark.parametrize(
    ("asked", "field", "words"),
    [
        ({"colour": {"equals": "red"}}, "filter.colour", "no field 'colour'; it has: year, genres, odd"),
        ({"year": {"above": 3}}, "filter.year.above", "no operator .above.; there are: equals, any_of"),
        ({"year": {"equals": "1990"}}, "filter.year.equals", "takes a finite number"),
        ({"year": {"equals": True}}, "filter.year.equals", "takes a finite number"),
        ({"year": {"gte": 10**400}}, "filter.year.gte", "takes a finite number"),
        ({"year": {"any_of": 3}}, "filter.year.any_of", "takes a list"),
        ({"year": 1990}, "filter.year", "takes an object"),
        ({"path": {"under": " > "}}, "filter.path.under", "takes a path, such as 'Women > Shoes'"),
        ({"year": {"under": "Women"}}, "filter.year.under", "holds no texts"),
        ({"year": {"not_null": 1}}, "filter.year.not_null", "takes true"),
        ({"genres": {"equals": 3}}, "filter.genres.equals", "takes a text"),
        ({"is_new": {"gte": False}}, "filter.is_new", "no order"),
        ({"is_new": {"equals": 1}}, "filter.is_new.equals", "takes true or false"),
        ({"odd": {"equals": 1}}, "filter.odd.equals", "several types"),
        ({"empty": {"gte": 1, "lt": "x"}}, "filter.empty", "mixes numbers and texts"),
        ({"empty": {"gte": True}}, "filter.empty.gte", "takes a number or a text"),
        ({"all": {"year": {}}}, "filter.all", "takes a list"),
        ({"any": [3]}, "filter.any.0", "takes an object"),
        ([], "filter", "takes an object"),
    ],
)
def test_what_can_not_be_asked_is_said_with_its_place(
    catalog: Catalog, asked: Any, field: str, words: str
) -> None:
    with pytest.raises(FilterError, match=words) as caught:
        compile_filter(asked, catalog)
    assert caught.value.field == field


def test_all_faults_of_a_filter_are_named_up_to_a_number(catalog: Catalog) -> None:
    """A filter that is too large is not read to its end."""
    with pytest.raises(FilterError, match="no field 'a0'") as caught:
        compile_filter({"year": {"gte": 1}} | {f"a{number}": {} for number in range(30)}, catalog)
    assert [one.field for one in caught.value.others] == [f"filter.a{number}" for number in range(1, 21)]
    with pytest.raises(FilterError, match="conditions") as caught:
        compile_filter({"any": [{"year": {"gte": n}} for n in range(2 * MAX_CONDITIONS)]}, catalog)
    assert [one.field for one in caught.value.others] == ["filter.any"]


def test_filters_have_a_depth_and_a_size(catalog: Catalog) -> None:
    deep: dict[str, Any] = {"year": {"gte": 1}}
    for _ in range(MAX_DEPTH - 1):
        deep = {"not": deep}
    compile_filter(deep, catalog)
    for asked, words in (
        ({"not": deep}, "nested deeper"),
        ({"any": [{"year": {"gte": n}} for n in range(MAX_CONDITIONS)]}, "conditions"),
        ({"any": [{}] * (MAX_CONDITIONS + 1)}, "conditions"),
        ({"year": {"any_of": list(range(MAX_VALUES + 1))}}, "values"),
        ({"year": {"any_of": list(range(MAX_VALUES)), "equals": 1}}, "values"),
    ):
        with pytest.raises(FilterError, match=words):
            compile_filter(asked, catalog)
    bottomless: dict[str, Any] = {}
    for _ in range(100_000):
        bottomless = {"not": bottomless}
    with pytest.raises(FilterError, match="nested deeper"):
        compile_filter(bottomless, catalog)


def test_a_mask_is_made_once_however_its_filter_is_written(catalog: Catalog) -> None:
    one = {"year": {"lt": 2005, "gte": 1990}, "genres": {"any_of": ["war", "drama", "war"]}}
    other = {"all": [{"genres": {"any_of": ["drama", "war"]}}, {"year": {"gte": 1990.0, "lt": 2005}}]}
    first = compile_filter(one, catalog).allowed()
    assert compile_filter(other, catalog).allowed() is first
    assert len(catalog.masks) == 1
    with pytest.raises(ValueError, match="read-only"):
        first.mask[0] = False


def test_masks_of_one_filter_over_other_rows_are_kept_apart(catalog: Catalog) -> None:
    """As those of a catalog with changed items are."""
    compiled = compile_filter({"year": {"gte": 1990}}, catalog)
    whole = compiled.allowed()
    other = compiled.cached("changed", lambda: np.ones(5, dtype=np.bool_))
    assert (whole.count, other.count) == (3, 5)
    assert compiled.cached("changed", lambda: np.zeros(5, dtype=np.bool_)) is other
    assert compiled.allowed() is whole


def test_equal_values_of_other_types_are_other_conditions(catalog: Catalog) -> None:
    """Of a field without values in the catalog, whose new items may have any."""
    one, true = (compile_filter({"empty": {"equals": value}}, catalog).condition for value in (1, True))
    assert len({one, true, Not(one), Not(true), every([one, true]), every([true, one])}) == 5


def test_a_filter_by_path_splits_no_text_of_an_item(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may ask for another path each time; texts are split once, where they are stored."""
    paths = [f"a > {number % 7}/{number}" for number in range(1000)]
    catalog = Catalog.build(range(1000), {"path": paths})
    new = ItemColumns(["path"], [{"path": path} for path in paths])
    monkeypatch.delattr(columns, "levels")
    for path, count in (("a", 1000), ("a > 3", 143), ("a > 3 > 3", 1), ("a > 3 > 4", 0), ("A", 0)):
        condition = Under("path", path)
        assert condition.mask(catalog).sum() == condition.mask(new).sum() == count


@given(ITEMS)
def test_an_item_has_the_same_values_in_the_catalog_and_beside_it(items: list[dict[str, Any]]) -> None:
    """So a cap counts the items of a brand together, new and changed ones too."""
    items = [*items, {**WHOLE, "country": 7}] if len(items) > 4 else items  # a field of several types
    catalog = catalog_of(items)
    for name in FIELDS:
        rows = np.arange(len(items))
        # The first half as the catalog has them, the others as changed ones of another item's row.
        changed = {place: item[name] for place, item in enumerate(items) if 2 * place >= len(items)}
        rows[[*changed]] = 0
        places, codes = catalog.coded(name, rows, changed)
        values = [columns.comparable(item[name]) for item in items]
        assert np.bincount(places, minlength=len(items)).tolist() == [*map(len, values)]
        by_value = sorted([i for i, some in enumerate(values) if one in some] for one in {*chain(*values)})
        by_code = sorted(sorted(places[codes == code].tolist()) for code in np.unique(codes))
        assert by_code == by_value


def test_cached_masks_are_bounded_with_the_values_of_their_filters() -> None:
    """A filter of the longest body outweighs the mask of a small catalog."""
    catalog = Catalog.build([0], {"title": ["a"]})
    for number in range(20):
        texts = [f"{number} {place} {'é' * 60_000}" for place in range(100)]
        compile_filter({"title": {"any_of": texts}}, catalog).allowed()
    assert MASK_BYTES / 2 < len(catalog.masks) * sum(map(getsizeof, texts)) < catalog.masks.size <= MASK_BYTES
    for number in range(600):
        compile_filter({"title": {"equals": str(number)}}, catalog).allowed()
    assert len(catalog.masks) == 512
    assert catalog.masks.size < 1_000_000


@pytest.mark.parametrize(
    ("field", "asked", "values", "met"),
    [
        ("year", {"gte": 1990}, [1990, "1990", True, None, [1, 1991]], [True, False, False, False, True]),
        ("is_new", {"equals": True}, [1, True, "true"], [False, True, False]),
        ("empty", {"any_of": ["x", 1, True]}, ["x", 1, 2, True, False], [True, True, False, True, False]),
        ("path", {"under": "Women"}, ["Women/Bags", 7, ["Sale", "Women"]], [True, False, True]),
        ("odd", {"not_null": True}, [{"a": 1}, None, [], 0], [True, False, False, True]),
    ],
)
def test_a_value_of_another_type_in_a_new_item_is_no_match(
    catalog: Catalog, field: str, asked: dict[str, Any], values: list[Any], met: list[bool]
) -> None:
    items: list[dict[str, Any]] = [*({field: value} for value in values), {}]
    mask = compile_filter({field: asked}, catalog).condition.mask(ItemColumns(catalog.kinds, items))
    assert mask.tolist() == [*met, False]
