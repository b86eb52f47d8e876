from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.places import FIXTURES
from turret.data.features import Feature
from turret.tower.bundle.publish import BundleContents
from turret.tower.errors import BundleError, EncodingError
from turret.tower.inference.encoder import Encoder
from turret.tower.times import Times

Make = Callable[..., BundleContents]
TOWERS = FIXTURES / "towers"


def encoder_of(contents: BundleContents) -> Encoder:
    return Encoder(
        contents.user_tower,
        contents.item_vectors,
        contents.history_length,
        contents.user_features,
        contents.reads_times,
    )


def unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    scaled: NDArray[np.float32] = vector / np.linalg.norm(vector)
    return scaled


def test_histories_of_unequal_length_are_averaged_each_on_its_own(make_contents: Make) -> None:
    contents = make_contents()
    histories = [np.array([3]), np.array([4, 5, 6]), np.array([7, 7])]
    encoded = encoder_of(contents).encode(histories, [{}, {}, {}])
    for rows, vector in zip(histories, encoded, strict=True):
        assert vector == pytest.approx(unit(contents.item_vectors[rows].mean(axis=0)), abs=1e-6)


def test_only_the_newest_rows_are_read(make_contents: Make) -> None:
    contents = replace(make_contents(), history_length=2)
    encoder = encoder_of(contents)
    long, short = encoder.encode([np.array([9, 8, 1, 2]), np.array([1, 2])], [{}, {}])
    assert np.array_equal(long, short)


def test_an_empty_history_is_encoded_too(make_contents: Make) -> None:
    assert encoder_of(make_contents()).encode([np.array([], np.int32)], [{}]).shape == (1, 8)


@pytest.mark.parametrize("times", [False, True])
def test_each_has_the_same_bits_whatever_comes_with_it(make_contents: Make, times: bool) -> None:
    contents = replace(make_contents(times=times), history_length=12)
    encoder = encoder_of(contents)
    assert encoder.is_steady is not times
    generator = np.random.default_rng(5)
    histories = [generator.integers(0, 10, size) for size in [*range(1, 15), *[12] * 40]]
    known = [
        Times(np.sort(generator.random(len(rows))) * 1e6, 2e6) if place % 3 else None
        for place, rows in enumerate(histories)
    ]
    features: list[dict[str, object]] = [{}] * len(histories)
    together = encoder.encode_each(histories, features, known)
    for rows, when, vector in zip(histories, known, together, strict=True):
        assert np.array_equal(encoder.encode_each([rows], [{}], [when])[0], vector)
        assert vector == pytest.approx(encoder.encode([rows], [{}], [when])[0], abs=1e-6)


def test_each_is_encoded_alone_where_others_would_make_a_difference(
    make_contents: Make, user_features: tuple[Feature, ...]
) -> None:
    """A tower that reads features, whose bags are filled up to the largest, or that was seen to differ."""
    reading = encoder_of(make_contents(features=user_features))
    given: list[dict[str, object]] = [{"likes": ["drama"]}, {"likes": ["drama", "comedy"]}]
    unsteady = encoder_of(make_contents())
    unsteady.__dict__["is_steady"] = False
    for encoder, features in ((reading, given), (unsteady, [{}, {}])):
        vectors = encoder.encode_each([np.array([0, 1])] * 2, features)
        for place in (0, 1):
            alone = encoder.encode([np.array([0, 1])], [features[place]])
            assert np.array_equal(vectors[place], alone[0])


def test_a_tower_that_mixes_its_lines_is_seen(make_contents: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = encoder_of(make_contents())
    run = encoder._session.run

    def mixed(inputs: dict[str, NDArray[np.float32]], shape: tuple[int, int]) -> NDArray[np.float32]:
        return run(inputs, shape) + np.float32(1e-6 * (shape[0] == 7))

    monkeypatch.setattr(encoder._session, "run", mixed)
    assert not encoder.is_steady


def test_a_recorded_tower_that_reads_times_has_the_same_bits_whatever_comes_with_it() -> None:
    """Its sines have other bits at the end of all numbers, for a few numbers only."""
    tower, items = (TOWERS / "times.onnx").read_bytes(), np.load(TOWERS / "times_items.npy")
    encoder = Encoder(tower, items, 5, (), reads_times=True)
    generator = np.random.default_rng(0)
    histories = [generator.integers(0, 24, size) for size in generator.integers(1, 60, 200)]
    known = [Times(np.sort(1.6e9 + generator.random(len(rows)) * 1e7), 1.7e9) for rows in histories]
    for start in range(0, len(histories), 16):
        some, when = histories[start : start + 16], known[start : start + 16]
        together = encoder.encode_each(some, [{}] * len(some), when)
        alone = [
            encoder.encode_each([rows], [{}], [times])[0] for rows, times in zip(some, when, strict=True)
        ]
        assert np.array_equal(together, alone)


def test_a_tower_that_takes_one_at_a_time_is_not_steady(
    make_contents: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = encoder_of(make_contents())
    run = encoder._session.run

    def one(inputs: dict[str, NDArray[np.float32]], shape: tuple[int, int]) -> NDArray[np.float32]:
        if shape[0] > 1:
            raise BundleError("user_tower.onnx can't be run (got 2, expected 1)")
        return run(inputs, shape)

    monkeypatch.setattr(encoder._session, "run", one)
    assert not encoder.is_steady
    assert encoder.encode_each([np.array([0]), np.array([1])], [{}, {}]).shape == (2, 8)


def test_one_of_each_that_can_not_be_encoded_is_named_with_its_place(
    make_contents: Make, user_features: tuple[Feature, ...]
) -> None:
    with pytest.raises(EncodingError) as caught:
        encoder_of(make_contents(features=user_features)).encode_each([np.array([0])] * 2, [{}, {"shoe": 43}])
    assert (caught.value.position, caught.value.field) == (1, "features.shoe")


def test_each_feature_moves_the_vector(make_contents: Make, user_features: tuple[Feature, ...]) -> None:
    encoder = encoder_of(make_contents(features=user_features))
    given: list[dict[str, object]] = [
        {},
        {"country": "de"},
        {"country": "fr"},
        {"age": 70},
        {"likes": ["drama"]},
        {"likes": ["drama", "comedy"]},
    ]
    vectors = encoder.encode([np.array([0, 1])] * len(given), given)
    assert len(np.unique(vectors.round(5), axis=0)) == len(given)


def test_unknown_values_count_as_nothing(make_contents: Make, user_features: tuple[Feature, ...]) -> None:
    encoder = encoder_of(make_contents(features=user_features))
    given: list[dict[str, object]] = [{}, {"country": "zz", "likes": ["opera"], "age": None}]
    vectors = encoder.encode([np.array([0, 1])] * 2, given)
    assert np.array_equal(vectors[0], vectors[1])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("age", "forty"),
        ("age", True),
        ("age", 1e300),
        ("age", 10**400),
        ("country", ["nl"]),
        ("country", {"a": 1}),
        ("likes", "drama"),
        ("likes", [["drama"]]),
        ("shoe", 43),
    ],
)
def test_a_feature_that_does_not_fit_is_named_with_its_place(
    make_contents: Make, user_features: tuple[Feature, ...], field: str, value: object
) -> None:
    encoder = encoder_of(make_contents(features=user_features))
    with pytest.raises(EncodingError) as caught:
        encoder.encode([np.array([0])] * 2, [{}, {field: value}])
    assert (caught.value.position, caught.value.field) == (1, f"features.{field}")
    assert caught.value.value == value
    with pytest.raises(EncodingError):
        encoder.check([{}, {field: value}])


def test_a_tower_that_reads_times_gets_gaps_and_clocks_of_what_it_reads(make_contents: Make) -> None:
    """In seconds, up to the request, of the newest five items; histories without times have none."""
    contents = make_contents(times=True)
    histories = [np.array([0, 1]), np.array([9, 9, 2, 3, 4, 5, 6]), np.array([7])]
    days = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) * 86_400
    times = [Times(np.array([0.0, 7200.0]), 18_000.0), Times(days, 6.5 * 86_400), None]
    encoded = encoder_of(contents).encode(histories, [{}] * 3, times)
    hours = [(2 + 3, 2 + 5), (4 * 24 + 12, 24 * (3 + 4 + 5 + 6 + 6.5)), (0, 0)]
    for rows, added, vector in zip(histories, hours, encoded, strict=True):
        state = contents.item_vectors[rows[-5:]].mean(axis=0)
        state[:2] += added
        assert vector == pytest.approx(unit(state), abs=1e-6)
    unknown = encoder_of(contents).encode(histories, [{}] * 3)
    without = encoder_of(make_contents()).encode(histories, [{}] * 3, times)
    assert np.array_equal(unknown, without), "a tower that reads no times leaves them alone"


def test_a_tower_that_reads_times_is_not_taken_for_another(make_contents: Make) -> None:
    for times in (True, False):
        with pytest.raises(BundleError, match="clocks"):
            encoder_of(replace(make_contents(times=times), reads_times=not times))


def test_a_tower_without_features_says_so(make_contents: Make) -> None:
    with pytest.raises(EncodingError, match="no user features"):
        encoder_of(make_contents()).check([{"age": 3}])


def test_a_model_that_can_not_be_run_is_refused(make_contents: Make) -> None:
    with pytest.raises(BundleError, match="can't be run"):
        encoder_of(replace(make_contents(), user_tower=b"nonsense"))


def test_a_tower_with_other_features_is_refused(
    make_contents: Make, user_features: tuple[Feature, ...]
) -> None:
    with pytest.raises(BundleError, match="feature_age"):
        encoder_of(replace(make_contents(), user_features=user_features))


def test_a_tower_of_another_width_is_refused(make_contents: Make) -> None:
    with pytest.raises(BundleError, match="different models"):
        encoder_of(replace(make_contents(dimension=8), user_tower=make_contents(dimension=4).user_tower))


@pytest.mark.parametrize("rows", [[60], [60, 61], [59, 60], [3, 61, 60, 0], [3, 59], []])
def test_rows_beyond_the_bundle_are_those_of_further_vectors(make_contents: Make, rows: list[int]) -> None:
    contents = make_contents()
    further = np.random.default_rng(8).standard_normal((2, 8)).astype(np.float32)
    found = encoder_of(contents).gather(np.array(rows, dtype=np.int64), further)
    assert np.array_equal(
        found, np.concatenate([contents.item_vectors, further])[np.array(rows, dtype=np.int64)]
    )
