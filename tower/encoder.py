"""Histories and features to user vectors, through the exported user tower."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from data.errors import DataError
from data.features import Feature
from tower.errors import BundleError, EncodingError
from tower.times import TIME_INPUTS, UNKNOWN, Times

_FITS = {
    "number": "a finite number",
    "category": "one value (text or a number)",
    "multi": "a list of values",
    "text": "a text",
}
# In deviations from the mean. Far beyond any real number, and far below what overflows inside a network.
_LARGEST_NUMBER = 1e6


class Encoder:
    """The user tower as ONNX, run on one thread.

    Its inputs are `history` float32 [B, T, D] (the item vectors of the newest rows, oldest first, then
    zeros), `length` int64 [B] and one `feature_<name>` for each user feature: int64 [B] for a category,
    float32 [B] for a number, int64 [B, M] of codes and then zeros for multi and text. A tower that
    `reads_times` also has `gaps` and `clocks` float32 [B, T], the seconds that `tower.times.time_inputs`
    gives, -1 where they are unknown. Its output is `user_vector` [B, D].

    Raises BundleError when `model` is not such a tower.
    """

    def __init__(
        self,
        model: bytes,
        vectors: NDArray[np.float32],
        history_length: int,
        features: Sequence[Feature],
        reads_times: bool = False,
    ) -> None:
        self._vectors = vectors
        self._history_length = history_length
        self._reads_times = reads_times
        self._features = tuple(features)
        self._names = frozenset(feature.name for feature in features)
        self._session = _session(model)
        self._check_inputs()

    def encode(
        self,
        histories: Sequence[NDArray[np.integer[Any]]],
        features: Sequence[Mapping[str, object]],
        times: Sequence[Times | None] | None = None,
    ) -> NDArray[np.float32]:
        """Return the user vectors [B, D] of B histories of rows (oldest first), each with its features.

        `times` says when the rows of each were used, if that is known; a tower that reads no times leaves
        it alone. A feature that is not given counts as unknown. Raises EncodingError for a feature that the
        tower doesn't have or a value that doesn't fit it, BundleError for a tower that can't be run on its
        own inputs.
        """
        inputs = self._histories(histories)
        if self._reads_times:
            inputs |= self._times(inputs["history"].shape[:2], times or [None] * len(histories))
        encoded = [self._encode_features(place, given) for place, given in enumerate(features)]
        for number, feature in enumerate(self._features):
            inputs[f"feature_{feature.name}"] = _column(feature, [row[number] for row in encoded])
        vectors = self._run(inputs)
        self._check_finite(vectors)
        return vectors

    def check(self, features: Sequence[Mapping[str, object]]) -> None:
        """Raise EncodingError for features that `encode` would refuse, without encoding any history."""
        for place, given in enumerate(features):
            if given:
                self._encode_features(place, given)

    def _run(self, inputs: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
        try:
            vectors: NDArray[np.float32] = self._session.run(["user_vector"], inputs)[0]
        except Exception as error:  # onnxruntime's own errors have no common base
            raise BundleError(f"user_tower.onnx can't be run ({_first_line(error)})") from None
        if vectors.shape != (len(inputs["length"]), self._vectors.shape[1]):
            raise BundleError(
                f"user_tower.onnx gives vectors of shape {vectors.shape}; export the bundle again"
            )
        return vectors

    def _histories(self, histories: Sequence[NDArray[np.integer[Any]]]) -> dict[str, NDArray[Any]]:
        newest = [rows[-self._history_length :] for rows in histories]
        lengths = np.array([len(rows) for rows in newest], dtype=np.int64)
        steps = max(1, int(lengths.max(initial=0)))
        stacked = np.zeros((len(newest), steps, self._vectors.shape[1]), dtype=np.float32)
        for place, rows in enumerate(newest):
            stacked[place, : len(rows)] = self._vectors[rows]
        return {"history": stacked, "length": lengths}

    def _times(self, shape: tuple[int, ...], times: Sequence[Times | None]) -> dict[str, NDArray[Any]]:
        gaps, clocks = np.full((2, *shape), UNKNOWN, dtype=np.float32)
        for place, known in enumerate(times):
            if known is not None and len(known.events):
                newest = known.newest(self._history_length)
                count = len(newest.events)
                gaps[place, :count], clocks[place, :count] = newest.inputs()
        return {"gaps": gaps, "clocks": clocks}

    def _encode_features(self, place: int, given: Mapping[str, object]) -> list[int | list[int] | float]:
        for name in given:
            if name not in self._names:
                raise EncodingError(place, f"features.{name}", given[name], self._unknown_feature())
        return [_encode(place, feature, given.get(feature.name)) for feature in self._features]

    def _unknown_feature(self) -> str:
        if not self._names:
            return "the model that is live reads no user features; leave this out"
        return f"the model that is live doesn't read this; it reads {', '.join(sorted(self._names))}"

    def _check_finite(self, vectors: NDArray[np.float32]) -> None:
        for place in np.flatnonzero(~np.isfinite(vectors).all(axis=1)):
            message = (
                "the user tower gives no finite vector for these features; send values nearer to usual ones"
            )
            raise EncodingError(int(place), "features", None, message)

    def _check_inputs(self) -> None:
        dimension = self._vectors.shape[1]
        shapes = {entry.name: entry.shape for entry in self._session.get_inputs()}
        times = TIME_INPUTS if self._reads_times else ()
        expected = {"history", "length", *times, *(f"feature_{name}" for name in self._names)}
        if set(shapes) != expected:
            raise BundleError(
                f"user_tower.onnx reads {sorted(shapes)}, but its bundle gives {sorted(expected)}"
            )
        if len(shapes["history"]) != 3 or shapes["history"][2] not in (dimension, None):
            raise BundleError(
                f"user_tower.onnx reads histories of shape {shapes['history']}, but the item vectors have "
                f"{dimension} columns; the tower and the vectors are of different models"
            )
        if "user_vector" not in {entry.name for entry in self._session.get_outputs()}:
            raise BundleError("user_tower.onnx has no output 'user_vector'; export the bundle again")


def _session(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    # One query is far too small to share between threads; many queries run beside each other.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own errors have no common base
        raise BundleError(f"user_tower.onnx can't be run ({_first_line(error)}); export it again") from None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200]


def _encode(place: int, feature: Feature, raw: object) -> int | list[int] | float:
    try:
        encoded = feature.encode_one(raw)
        fits = not isinstance(encoded, float) or abs(encoded) <= _LARGEST_NUMBER
    except (DataError, OverflowError, ValueError):
        fits = False
    if not fits:
        message = f"this feature takes {_FITS[feature.kind]} in a usual range, or null where it is unknown"
        raise EncodingError(place, f"features.{feature.name}", raw, message)
    return encoded


def _column(feature: Feature, encoded: list[Any]) -> NDArray[Any]:
    if feature.kind == "number":
        return np.array(encoded, dtype=np.float32)
    if feature.kind == "category":
        return np.array(encoded, dtype=np.int64)
    codes = np.zeros((len(encoded), max(1, *map(len, encoded), 1)), dtype=np.int64)
    for place, row in enumerate(encoded):
        codes[place, : len(row)] = row
    return codes
