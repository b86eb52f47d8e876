"""What requests may name of a version, as JSON schemas: the service refuses what they refuse."""

from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.described_shop import publish_described
from turret.data.features import Feature
from turret.service.http.openapi.live_schemas import feature_schema, live_schemas
from turret.tower.bundle.bundle import Bundle
from turret.tower.catalog.filters import compile_filter
from turret.tower.errors import EncodingError, FilterError

# The same cases in every run: else chance decides whose change is held up by what was there before.
SHARED = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200, derandomize=True
)
NUMBERS = st.integers(-5, 2000) | st.floats(-1e3, 1e3)
SCALARS = st.none() | st.booleans() | NUMBERS | st.sampled_from(["nl", ""])
FIELDS = st.sampled_from(
    ["title", "genres", "year", "sizes", "new", "country", "anything", "nothing", "unknown"]
)
OPERATORS = st.sampled_from(["equals", "any_of", "none_of", "not_null", "gte", "lt", "like"])
CONDITIONS = FIELDS.flatmap(
    lambda field: st.dictionaries(OPERATORS, SCALARS | st.lists(SCALARS, max_size=3), max_size=2).map(
        lambda asked: {field: asked}
    )
)
FILTERS = st.recursive(
    CONDITIONS,
    lambda inner: (
        st.lists(inner, max_size=2).map(lambda some: {"all": some})
        | st.lists(inner, max_size=2).map(lambda some: {"any": some})
        | inner.map(lambda one: {"not": one})
    ),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    root: Path = tmp_path_factory.mktemp("described")
    publish_described(root)
    return Bundle.open(root / "v1")


def fits(bundle: Bundle | None, name: str, value: Any) -> bool:
    document = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": live_schemas(bundle)}}
    return bool(jsonschema_rs.validator_for(document).is_valid(value))


def is_read(bundle: Bundle, wanted: Any) -> bool:
    try:
        compile_filter(wanted, bundle.catalog)
    except FilterError:
        return False
    return True


@SHARED
@given(FILTERS)
@example({"anything": {"any_of": []}})
@example({"anything": {"none_of": []}})
def test_a_filter_fits_if_it_is_read(bundle: Bundle, wanted: dict[str, Any]) -> None:
    assert fits(bundle, "Filter", wanted) == is_read(bundle, wanted)


@SHARED
@given(FILTERS)
def test_every_filter_of_a_version_fits_where_no_version_is_known(
    bundle: Bundle, wanted: dict[str, Any]
) -> None:
    if is_read(bundle, wanted):
        assert fits(None, "Filter", wanted)


@SHARED
@given(
    st.dictionaries(
        st.sampled_from(["country", "age", "likes", "other"]),
        SCALARS | st.lists(SCALARS, max_size=3) | st.sampled_from([1e6, 1e8, 10_000_040.0, 10_000_041.0]),
    )
)
def test_features_fit_if_they_are_read(bundle: Bundle, features: dict[str, Any]) -> None:
    try:
        bundle.encoder.check([features])
    except EncodingError:
        assert not fits(bundle, "UserFeatures", features)
    else:
        assert fits(bundle, "UserFeatures", features)
        assert fits(None, "UserFeatures", features)


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_the_bounds_of_a_number_are_the_last_that_are_read(mean: float, deviation: float) -> None:
    feature = Feature(name="age", kind="number", mean=mean, deviation=deviation)
    number, _ = feature_schema(feature)["anyOf"]
    for bound in (number["minimum"], number["maximum"]):
        encoded = feature.encode_one(bound)
        assert isinstance(encoded, float)
        assert 0.999999e6 < abs(encoded) <= 1e6


def test_an_id_is_of_the_catalogs_kind(bundle: Bundle) -> None:
    for text in ("7", "-7", "0"):
        assert fits(bundle, "ItemId", text)
    for text in ("", "a", "07", "-0", "7.0", "x" * 513):
        assert not fits(bundle, "ItemId", text)
    assert fits(None, "ItemId", "a/b")


def test_caps_are_of_known_fields(bundle: Bundle) -> None:
    assert fits(bundle, "Caps", {"genres": 2})
    assert not fits(bundle, "Caps", {"genres": 0})
    assert not fits(bundle, "Caps", {"unknown": 2})
    assert fits(None, "Caps", {"unknown": 2})
