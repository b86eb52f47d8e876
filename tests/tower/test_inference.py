"""Encoders: histories, features and times of requests become vectors, whatever comes with them."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from tests.conftest import USER_FEATURES, contents, user_tower
from tests.support.item_towers import item_features, item_tower, placed
from turret.data.features.feature import Feature
from turret.data.features.texts import number_of
from turret.data.kinds import Kind
from turret.data.preparing.encoding import encode
from turret.data.preparing.feature_readings import read_features
from turret.data.reading.schema import FeatureColumns
from turret.data.reading.source_settings import FormatSettings
from turret.tower.bundle.publish import BundleContents
from turret.tower.counted_kinds import CountedKinds
from turret.tower.errors import BundleError, EncodingError
from turret.tower.inference.encoder import Encoder, ItemEncoder
from turret.tower.inference.feature_inputs import FeatureInputs
from turret.tower.times import Times

KINDS = {"view": Kind(role="signal"), "purchase": Kind()}


def encoder_of(contents: BundleContents) -> Encoder:
    return Encoder(contents.user_tower, contents.item_vectors, contents.user_features, contents.card)


def unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    scaled: NDArray[np.float32] = vector / np.linalg.norm(vector)
    return scaled


def test_the_newest_rows_of_each_history_are_averaged() -> None:
    made = contents()
    histories = [np.array([3]), np.array([4, 5, 6]), np.array([7, 7]), np.array([9, 8, 1, 2, 3, 4, 5])]
    encoded = encoder_of(made).encode(histories, [{}] * 4)
    for rows, vector in zip(histories, encoded, strict=True):
        assert vector == pytest.approx(unit(made.item_vectors[rows[-5:]].mean(axis=0)), abs=1e-6)


@pytest.mark.parametrize(
    "read",
    [{}, {"times": True}, {"kinds": KINDS}, {"features": USER_FEATURES}],
    ids=lambda read: [*read, ""][0],
)
def test_each_has_the_same_bits_whatever_comes_with_it(read: dict[str, Any]) -> None:
    encoder = encoder_of(contents(**read, history_length=12))
    generator = np.random.default_rng(5)
    histories = [generator.integers(0, 10, size) for size in [*range(1, 15), *[12] * 40]]
    known = [
        Times(np.sort(generator.random(len(rows))) * 1e6, 2e6) if place % 3 else None
        for place, rows in enumerate(histories)
    ]
    codes = [rows % 3 - 1 if len(rows) % 2 else None for rows in histories]
    likes = ["drama", "comedy", "opera"]
    features = [{"likes": likes[: len(rows) % 4]} if "features" in read else {} for rows in histories]
    together = encoder.encode(histories, features, known, kinds=codes)
    for rows, given, when, kind, vector in zip(histories, features, known, codes, together, strict=True):
        assert np.array_equal(encoder.encode([rows], [given], [when], kinds=[kind])[0], vector)


def test_each_is_encoded_alone_by_a_tower_that_mixes_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, rows = encoder_of(contents()), np.array([0, 1])
    run = encoder._session.run

    def mixed(inputs: dict[str, NDArray[np.float32]], shape: tuple[int, int]) -> NDArray[np.float32]:
        return run(inputs, shape) + np.float32(1e-6 * (shape[0] == 7))

    monkeypatch.setattr(encoder._session, "run", mixed)
    alone = encoder.encode([rows], [{}])
    assert np.array_equal(encoder.encode([rows] * 7, [{}] * 7), alone.repeat(7, axis=0))


def test_unknown_values_of_features_count_as_nothing() -> None:
    unknown = {"country": "zz", "likes": ["opera"], "age": None}
    vectors = encoder_of(contents(features=USER_FEATURES)).encode([np.array([0, 1])] * 2, [{}, unknown])
    assert np.array_equal(vectors[0], vectors[1])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("age", "forty"),
        ("age", 10**400),
        ("country", {"a": 1}),
        ("likes", 5),
        ("shoe", 43),
    ],
)
def test_a_feature_that_does_not_fit_is_named_with_its_place(field: str, value: object) -> None:
    encoder = encoder_of(contents(features=USER_FEATURES))
    with pytest.raises(EncodingError) as caught:
        encoder.encode([np.array([0])] * 2, [{}, {field: value}])
    assert (caught.value.position, caught.value.field) == (1, f"features.{field}")
    assert caught.value.value == value
    with pytest.raises(EncodingError):
        encoder.check([{}, {field: value}])


def test_a_tower_that_reads_times_gets_gaps_and_clocks_of_what_it_reads() -> None:
    """In seconds, up to the request, of the newest five items; histories without times have none."""
    made = contents(times=True)
    histories = [np.array([0, 1]), np.array([9, 9, 2, 3, 4, 5, 6]), np.array([7])]
    days = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) * 86_400
    times = [Times(np.array([0.0, 7200.0]), 18_000.0), Times(days, 6.5 * 86_400), None]
    encoded = encoder_of(made).encode(histories, [{}] * 3, times)
    hours = [(2 + 3, 2 + 5), (4 * 24 + 12, 24 * (3 + 4 + 5 + 6 + 6.5)), (0, 0)]
    for rows, added, vector in zip(histories, hours, encoded, strict=True):
        state = made.item_vectors[rows[-5:]].mean(axis=0)
        state[:2] += added
        assert vector == pytest.approx(unit(state), abs=1e-6)
    unknown = encoder_of(made).encode(histories, [{}] * 3)
    without = encoder_of(contents()).encode(histories, [{}] * 3, times)
    assert without == pytest.approx(unknown, abs=1e-6), "a tower that reads no times leaves them alone"


def test_an_event_without_a_kind_has_no_code_and_one_of_an_unknown_kind_is_not_read() -> None:
    """The default kind of a bundle is that of events without one."""
    for default, code in ((None, -1), ("purchase", 1)):
        card = contents(kinds=KINDS, default_kind=default).card
        counted = CountedKinds(card).count(
            ["a", "b", "c", "d"], [None, "gone", "view", "purchase"], None, 0.0
        )
        assert counted.are_read.tolist() == [True, False, True, True]
        assert counted.codes[counted.are_read].tolist() == [code, 0, 1]


def test_a_tower_that_reads_kinds_gets_those_of_what_it_reads() -> None:
    """Of the newest five items; an unknown kind, and a history without kinds, has none."""
    made = contents(kinds=KINDS)
    histories = [np.array([0, 1]), np.array([9, 9, 2, 3, 4, 5, 6]), np.array([7])]
    kinds = [np.array([1, -1]), np.array([1, 1, 0, 0, 1, 0, 0]), None]
    encoded = encoder_of(made).encode(histories, [{}] * 3, kinds=kinds)
    for rows, counts, vector in zip(histories, [(0, 1), (4, 1), (0, 0)], encoded, strict=True):
        state = made.item_vectors[rows[-5:]].mean(axis=0)
        state[:2] += counts
        assert vector == pytest.approx(unit(state), abs=1e-6)
    alone = encoder_of(contents()).encode(histories, [{}] * 3, kinds=kinds)
    unknown = encoder_of(made).encode(histories, [{}] * 3)
    assert np.array_equal(unknown, alone), "a tower that reads no kinds leaves them alone"


def test_a_tower_of_sets_gets_each_item_once_at_its_first_use() -> None:
    """Of the newest five events: not what was used before them."""
    made = contents(kinds=KINDS)
    sets = encoder_of(replace(made, card=made.card.model_copy(update={"reads_sets": True})))
    histories = [np.array([9, 2, 3, 2, 3, 3]), np.array([7, 7, 1]), np.array([4])]
    kinds = [np.array([0, 1, 0, 0, 1, 1]), np.array([-1, 1, 0]), None]
    first_uses = [np.array([2, 3]), np.array([7, 1]), np.array([4])]
    their_kinds = [np.array([1, 0]), np.array([-1, 0]), None]
    expected = encoder_of(made).encode(first_uses, [{}] * 3, kinds=their_kinds)
    assert np.array_equal(sets.encode(histories, [{}] * 3, kinds=kinds), expected)
    without = encoder_of(made).encode(first_uses, [{}] * 3)
    assert np.array_equal(sets.encode(histories, [{}] * 3), without)


def described(**changes: Any) -> BundleContents:
    """The usual tower in a bundle that says something else of it."""
    made = contents()
    return replace(made, card=made.card.model_copy(update=changes))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (replace(contents(), user_tower=b"nonsense"), "can't be run"),
        (replace(contents(), user_features=USER_FEATURES), "feature_age"),
        (replace(contents(), user_tower=user_tower(4, ())), "different models"),
        (replace(contents(), user_tower=user_tower(8, (), times=True)), "clocks"),
        (described(reads_times=True), "clocks"),
        (described(reads_kinds=True), "kinds"),
    ],
    ids=["nonsense", "features", "width", "times", "no times", "no kinds"],
)
def test_a_tower_of_another_bundle_is_refused(made: BundleContents, words: str) -> None:
    with pytest.raises(BundleError, match=words):
        encoder_of(made)


def test_rows_beyond_the_bundle_are_those_of_further_vectors() -> None:
    made = contents()
    further = np.random.default_rng(8).standard_normal((2, 8)).astype(np.float32)
    both = np.concatenate([made.item_vectors, further])
    for chosen in ([60], [60, 61], [59, 60], [3, 61, 60, 0], [3, 59], []):
        rows = np.array(chosen, dtype=np.int64)
        assert np.array_equal(encoder_of(made).gather(rows, further), both[rows])


@pytest.fixture(scope="module")
def item_encoder() -> ItemEncoder:
    return ItemEncoder(item_tower(3), 3, item_features(3))


def test_raw_features_become_vectors(item_encoder: ItemEncoder) -> None:
    """More than pass at once come out in order, whatever the lengths of their lists."""
    here = placed([3.0, 0.0, 4.0])
    given: list[dict[str, object]] = [
        {**here},
        {**here, "kind": "film", "tags": ["new", "unheard of"]},
        {"kind": None},
    ]
    expected = np.array([[0.6, 0, 0.8], [-0.6, 0, -0.8], [1, 0, 0]])
    np.testing.assert_allclose(item_encoder.encode(given), expected, atol=1e-6)
    angles = np.linspace(0, 3, 2500)
    tags: list[list[str]] = [[], ["old", "new"], ["new"]]
    given = [
        {"n0": float(np.cos(a)), "n1": float(np.sin(a)), "tags": tags[i % 3]} for i, a in enumerate(angles)
    ]
    found = item_encoder.encode(given)
    np.testing.assert_allclose(found[:, :2], np.stack([np.cos(angles), np.sin(angles)], axis=1), atol=1e-5)


def test_lists_of_codes_are_padded_with_no_more_zeros_than_codes() -> None:
    """A few long lists among many short ones, in two features: each item is in one block of bounded size."""
    values = tuple(f"v{number}" for number in range(2_000))
    inputs = FeatureInputs([Feature(name=name, kind="multi", values=values) for name in ("a", "b")], "item")
    random = np.random.default_rng(0)
    given: list[dict[str, object]] = [{"a": [*values[: random.integers(0, 4)]]} for _ in range(3_000)]
    given[::300] = [{"ab"[number % 2]: [*values]} for number in range(10)]
    codes = sum(len(cast("list[str]", one)) for item in given for one in item.values())
    found, slots = [], []
    for positions, block in inputs.blocks(given):
        found += positions
        slots.append(sum(column.size for column in block.values()))
        for row, position in enumerate(positions):
            wanted = [len(cast("list[str]", given[position].get(name, []))) for name in ("a", "b")]
            assert [np.count_nonzero(column[row]) for column in block.values()] == wanted
    assert sorted(found) == [*range(3_000)]
    assert sum(slots) <= 2 * codes + 16 * len(given)
    assert max(slots) <= 2 * (16_384 + 4_000) + 16 * 1024


def test_a_feature_of_an_item_that_does_not_fit_is_named_with_its_place(item_encoder: ItemEncoder) -> None:
    """The place counts on over all that pass at once."""
    for name, value in (("n1", "one"), ("kind", ["book"]), ("colour", "red")):
        with pytest.raises(EncodingError) as caught:
            item_encoder.encode([{}] * 1500 + [{name: value}])
        assert (caught.value.position, caught.value.field) == (1500, f"features.{name}")


def test_all_features_of_an_item_that_do_not_fit_are_named_up_to_a_number(item_encoder: ItemEncoder) -> None:
    given = {"n1": "one", "n0": 1.0, "kind": ["book"]} | {f"x{number}": 1 for number in range(2)}
    with pytest.raises(EncodingError, match="it reads kind, n0") as caught:
        item_encoder.encode([{}, given])
    found = [(one.position, one.field) for one in (caught.value, *caught.value.others)]
    assert found == [(1, f"features.{name}") for name in ("x0", "x1", "n1", "kind")]
    with pytest.raises(EncodingError) as caught:
        item_encoder.encode([{f"x{number}": 1 for number in range(90)}])
    assert len(caught.value.others) == 20


def test_what_another_version_was_sent_is_read_as_far_as_it_goes(item_encoder: ItemEncoder) -> None:
    given: dict[str, object] = {"n0": 1.0, "n1": "one", "colour": "red", "kind": "film"}
    assert item_encoder.readable(given) == {"n0": 1.0, "kind": "film"}


def test_an_item_tower_that_is_not_of_its_bundle_is_refused() -> None:
    for model, features, words in (
        (item_tower(3), item_features(2), "feature_n2"),
        (b"nonsense", item_features(3), "can't be run"),
        (item_tower(3), (), "without item features"),
    ):
        with pytest.raises(BundleError, match=words):
            ItemEncoder(model, 3, features)
    with pytest.raises(BundleError, match="shape"):
        ItemEncoder(item_tower(3), 4, item_features(3)).encode([{}])


@pytest.mark.parametrize(
    ("dates", "prices", "colours", "decimal"),
    [
        (
            ["2024-02-29", "1969-12-31", "2031-07-01T18:00:00"],
            ["€ 1,299.00", "15.9 CHF", "12 %"],
            ["red|blue", "blue|red", "red"],
            ".",
        ),
        (
            ["29.02.2024", "31.12.1969 06:30", "01.07.2031 18:00:00"],
            ["1.299,00 €", "1.299", "12,5"],
            ["red; blue", "blue;red", "red"],
            ",",
        ),
    ],
    ids=["usual", "German"],
)
def test_columns_of_a_catalog_are_read_as_the_features_that_are_prepared_of_them(
    dates: list[str], prices: list[str], colours: list[str], decimal: str
) -> None:
    """As far as there are such features; and as fields where these are numbers, lists or truth values."""
    columns = {
        "listed": dates,
        "price": prices,
        "listed_by": ["a b", "a b", "c"],
        "colours": colours,
        "stock": ["0", "7", "12"],
        "sale": ["true", "False", "true"],
    }
    settings, where = FormatSettings(decimal=decimal), Path("items")
    readings = read_features(pl.DataFrame(columns), FeatureColumns(), where, "item", settings)
    raw = {name: values.to_list() for name, values in readings.values.items()}
    kinds = {name: kind for kind, name in readings.chosen.by_kind()}
    encoded = encode(raw, kinds, {}, 3, written=readings.written)
    inputs = FeatureInputs(encoded.features, "item")
    assert sorted(raw) == ["colours", "listed_by", "listed_days", "listed_month", "price"]
    assert inputs.as_fields(
        {"price": prices[0], "colours": colours[0], "stock": "0", "sale": "False", "listed": dates[0]},
        {"price": "number", "colours": "texts", "stock": "number", "sale": "boolean", "listed": "text"},
    ) == {"price": 1299, "colours": ["red", "blue"], "stock": 0, "sale": False, "listed": dates[0]}
    for row in range(3):
        given = {name: texts[row] for name, texts in columns.items() if name not in ("stock", "sale")}
        found = inputs.from_columns(given)
        assert found == {name: values[row] for name, values in raw.items()}
        assert inputs.from_columns(found) == found


def test_dates_and_numbers_that_could_be_others_are_not_read() -> None:
    inputs = FeatureInputs(
        [Feature(name=f"listed_{part}", kind="number") for part in ("days", "month")], "item"
    )
    gone = dict.fromkeys(["listed_days", "listed_month"])
    assert inputs.from_columns({"listed": None}) == gone
    assert [number_of(text) for text in ("1.299", "1,299", "12,5", "x", "", "9" * 400)] == [
        *(None, None, 12.5, None, None, None)
    ]
    for wrong in ("soon", 5, ["2024-02-29"], "0" * 9_000):
        with pytest.raises(EncodingError, match="this is a date; write it like 2024-05-01"):
            inputs.encode(0, {"listed": wrong})
    days_alone = FeatureInputs([Feature(name="listed_days", kind="number")], "item")
    assert days_alone.from_columns({"listed": "1970-01-03"}) == {"listed_days": 2.0}
