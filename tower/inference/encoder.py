"""Both towers by ONNX Runtime: from histories, and from the features of untrained items, to vectors."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from turret.data.features import Feature
from turret.tower.errors import BundleError, EncodingError
from turret.tower.format.manifest import ITEM_FEATURES, ITEM_TOWER, Manifest
from turret.tower.format.safe_open import read_regular
from turret.tower.hostile import check_onnx
from turret.tower.inference.feature_inputs import FeatureInputs, read_features
from turret.tower.times import TIME_INPUTS, UNKNOWN, Times

# Of a tower's file: far above any exported one, and far below the memory of a machine.
TOWER_BYTES = 2_000_000_000
_OPTIONS = {
    # A second line of defence behind `check_onnx`. This is no folder, so it holds no file; the default is the
    # working directory.
    "session.model_external_initializers_file_folder_path": "/dev/null",
    "session.load_model_format": "ONNX",
}


class Session:
    """A tower as ONNX with one output of float32 [B, D].

    `name` is the file that a fault is told with. Raises BundleError when `model` can't be run, or could do
    anything but compute (see `tower.hostile`).
    """

    def __init__(self, model: bytes, name: str, output: str) -> None:
        self._name, self._output = name, output
        check_onnx(model, name)
        options = onnxruntime.SessionOptions()
        # One query is far too small to share between threads; many queries run beside each other.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4  # errors are raised, and reported once
        for key, value in _OPTIONS.items():
            options.add_session_config_entry(key, value)
        try:
            session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own errors have no common base
            raise BundleError(f"{name} can't be run ({_first_line(error)}); export it again") from None
        self._session = session
        self._outputs = [output]
        self.shapes: dict[str, list[Any]] = {entry.name: entry.shape for entry in session.get_inputs()}

    def check(self, inputs: set[str]) -> None:
        """Raise BundleError when the tower reads other inputs than these, or has no such output."""
        if set(self.shapes) != inputs:
            raise BundleError(
                f"{self._name} reads {sorted(self.shapes)}, but its bundle gives {sorted(inputs)}", "parts"
            )
        if self._output not in {entry.name for entry in self._session.get_outputs()}:
            raise BundleError(
                f"{self._name} has no output {self._output!r}; export the bundle again", "parts"
            )

    def run(self, inputs: dict[str, NDArray[Any]], shape: tuple[int, int]) -> NDArray[np.float32]:
        """Return the tower's vectors.

        Raises BundleError when it can't be run, or their shape is another.
        """
        try:
            vectors: NDArray[np.float32] = self._session.run(self._outputs, inputs)[0]
        except Exception as error:  # onnxruntime's own errors have no common base
            raise BundleError(f"{self._name} can't be run ({_first_line(error)})") from None
        if vectors.shape != shape:
            raise BundleError(f"{self._name} gives vectors of shape {vectors.shape}; export the bundle again")
        return vectors


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200]


Vectors = NDArray[np.float32]
# The largest batch of `encode_each`, and the least number of steps that histories are padded to.
TOGETHER, _LEAST_STEPS = 16, 8
# Long histories take long: `is_steady` tries only some batch sizes of them.
_LONG, _SOME = 64, (2, 3, 5, 7)
Kinds = NDArray[np.integer[Any]]


class Encoder:
    """The user tower as ONNX, run on one thread.

    Its inputs are `history` float32 [B, T, D] (the item vectors of the newest rows, oldest first, then
    zeros), `length` int64 [B] and one `feature_<name>` for each user feature, as `FeatureInputs` has them. A
    tower that `reads_times` also has `gaps` and `clocks` float32 [B, T], the seconds that
    `tower.times.time_inputs` gives, -1 where they are unknown; one that `reads_kinds` has `kinds` int64
    [B, T], the codes of `data.kinds`, -1 where they are unknown. Its output is `user_vector` [B, D].

    Raises BundleError when `model` is not such a tower.
    """

    def __init__(
        self,
        model: bytes,
        vectors: Vectors,
        history_length: int,
        features: Sequence[Feature],
        reads_times: bool = False,
        reads_queries: bool = False,
        reads_kinds: bool = False,
    ) -> None:
        # A plain view of a memory map is faster to access.
        self._vectors = np.asarray(vectors)
        self._history_length = history_length
        self._reads_times = reads_times
        self._reads_queries = reads_queries
        self._reads_kinds = reads_kinds
        self._features = FeatureInputs(features, "user")
        self._session = Session(model, "user_tower.onnx", "user_vector")
        self._check_inputs()

    def can_encode(self, rows: NDArray[np.integer[Any]], features: Mapping[str, object]) -> bool:
        """Whether a history of these rows, or a query of these features, says anything.

        A history does by a known item, a query by a known gram or by a ready vector. Others are answered by
        popularity.
        """
        return self._features.any_known(features) if self._reads_queries else len(rows) > 0

    def encode(
        self,
        histories: Sequence[NDArray[np.integer[Any]]],
        features: Sequence[Mapping[str, object]],
        times: Sequence[Times | None] | None = None,
        more: Vectors | None = None,
        kinds: Sequence[Kinds | None] | None = None,
    ) -> Vectors:
        """Return the user vectors [B, D] of B histories of rows (oldest first), each with its features.

        `times` says when the rows of each were used, and `kinds` has the codes of their kinds (`data.kinds`,
        -1 for unknown ones), if that is known; a tower that reads no times or kinds leaves them alone. `more`
        [M, D] holds the vectors of the rows from N on: items that are not in the bundle. A feature that is
        not given counts as unknown. Raises EncodingError for a feature that the tower doesn't have or a value
        that doesn't fit it, BundleError for a tower that can't be run on its own inputs.
        """
        inputs = (
            self._history(histories[0], more) if len(histories) == 1 else self._histories(histories, more)
        )
        if self._reads_kinds:
            inputs |= self._kinds(inputs["history"].shape[:2], kinds or [None] * len(histories))
        if self._reads_times:
            inputs |= self._times(inputs["history"].shape[:2], times or [None] * len(histories))
        if self._features.features or any(features):
            inputs |= self._features.inputs(features)
        vectors = self._session.run(inputs, (len(histories), self._vectors.shape[1]))
        self._check_finite(vectors)
        return vectors

    def encode_each(
        self,
        histories: Sequence[NDArray[np.integer[Any]]],
        features: Sequence[Mapping[str, object]],
        times: Sequence[Times | None] | None = None,
        more: Vectors | None = None,
        kinds: Sequence[Kinds | None] | None = None,
    ) -> Vectors:
        """As `encode`, but a vector is bitwise independent of the other histories.

        Rounding depends on the batch size and on padding. So histories of equal padded length are encoded
        together, a lone one twice; a tower that is not `is_steady`, and one that reads features or times,
        encodes each alone.
        """
        times, kinds = times or [None] * len(histories), kinds or [None] * len(histories)
        if self._features.features or any(features) or not self.is_steady:
            return self._each_alone(histories, features, times, more, kinds)
        vectors = np.empty((len(histories), self._vectors.shape[1]), dtype=np.float32)
        for indices in self._groups(histories):
            pair = indices if len(indices) > 1 else indices * 2
            steps = self._steps(len(histories[indices[0]]))
            inputs = self._histories([histories[i] for i in pair], more, steps)
            if self._reads_kinds:
                inputs |= self._kinds(inputs["history"].shape[:2], [kinds[i] for i in pair])
            vectors[indices] = self._session.run(inputs, (len(pair), vectors.shape[1]))[: len(indices)]
        self._check_finite(vectors)
        return vectors

    @cached_property
    def is_steady(self) -> bool:
        """Whether batches of up to `TOGETHER` histories of equal length gave the same bits as batches of two.

        False for a tower that reads times: the last few sines of an array, which don't fill a register, are
        computed otherwise, and only some values show it, so that a trial proves nothing.
        """
        if self._reads_times:
            return False
        every = {self._steps(count) for count in range(1, self._history_length + 1)}
        try:
            return all(map(self._is_steady, every))
        except BundleError:  # a tower that takes one at a time
            return False

    def _is_steady(self, steps: int) -> bool:
        rows = np.resize(np.arange(len(self._vectors)), (TOGETHER, steps))
        inputs = self._histories(list(rows), None)
        if self._reads_kinds:
            inputs |= self._kinds(rows.shape, list(rows % 2))
        every = self._session.run(inputs, (TOGETHER, self._vectors.shape[1]))
        for count in range(2, TOGETHER) if steps <= _LONG else _SOME:
            some = {name: given[:count].copy() for name, given in inputs.items()}
            if not np.array_equal(self._session.run(some, (count, every.shape[1])), every[:count]):
                return False
        return True

    def _each_alone(
        self,
        histories: Sequence[NDArray[np.integer[Any]]],
        features: Sequence[Mapping[str, object]],
        times: Sequence[Times | None],
        more: Vectors | None,
        kinds: Sequence[Kinds | None],
    ) -> Vectors:
        vectors = np.empty((len(histories), self._vectors.shape[1]), dtype=np.float32)
        each = zip(histories, features, times, kinds, strict=True)
        for i, (rows, given, known, codes) in enumerate(each):
            try:
                vectors[i] = self.encode([rows], [given], [known], more, [codes])[0]
            except EncodingError as error:
                raise EncodingError(i, error.field, error.value, str(error)) from None
        return vectors

    def _groups(self, histories: Sequence[NDArray[np.integer[Any]]]) -> list[list[int]]:
        """The indices of histories of equal padded length, in groups of at most `TOGETHER`."""
        by_steps: dict[int, list[int]] = {}
        for i, rows in enumerate(histories):
            by_steps.setdefault(self._steps(len(rows)), []).append(i)
        return [
            indices[start : start + TOGETHER]
            for indices in by_steps.values()
            for start in range(0, len(indices), TOGETHER)
        ]

    def _steps(self, count: int) -> int:
        """The padded length of a history of `count` items: a power of two, or all that the tower reads."""
        return min(self._history_length, max(_LEAST_STEPS, 1 << (count - 1).bit_length()))

    def check(self, features: Sequence[Mapping[str, object]]) -> None:
        """Raise EncodingError for features that `encode` would refuse, without encoding any history."""
        for i, given in enumerate(features):
            if given:
                self._features.encode(i, given)

    def gather(self, rows: NDArray[np.integer[Any]], more: Vectors | None = None) -> Vectors:
        """Return the item vectors [B, D] of rows [B]: from N on those of `more`, as `encode` has it."""
        count = len(self._vectors)
        if more is None or not len(rows) or rows.max() < count:
            found: Vectors = self._vectors.take(rows, axis=0)
            return found
        is_more = rows >= count
        gathered = np.empty((len(rows), self._vectors.shape[1]), dtype=np.float32)
        gathered[~is_more] = self._vectors[rows[~is_more]]
        gathered[is_more] = more[rows[is_more] - count]
        return gathered

    def _history(self, history: NDArray[np.integer[Any]], more: Vectors | None) -> dict[str, NDArray[Any]]:
        """As `_histories` for a single one, without padding and a second copy."""
        rows = history[-self._history_length :]
        count = len(rows)
        if not count:
            return self._histories([rows], more)
        return {"history": self.gather(rows, more)[None], "length": np.array([count], dtype=np.int64)}

    def _histories(
        self, histories: Sequence[NDArray[np.integer[Any]]], more: Vectors | None, steps: int = 1
    ) -> dict[str, NDArray[Any]]:
        """The inputs of histories, padded to at least `steps`."""
        newest = [rows[-self._history_length :] for rows in histories]
        lengths = np.array([len(rows) for rows in newest], dtype=np.int64)
        steps = max(steps, int(lengths.max(initial=0)))
        shape = len(newest), steps, self._vectors.shape[1]
        if len(newest) and lengths.min() == steps:
            return {"history": self.gather(np.concatenate(newest), more).reshape(shape), "length": lengths}
        stacked = np.zeros(shape, dtype=np.float32)
        for i, rows in enumerate(newest):
            stacked[i, : len(rows)] = self.gather(rows, more)
        return {"history": stacked, "length": lengths}

    def _times(self, shape: tuple[int, ...], times: Sequence[Times | None]) -> dict[str, NDArray[Any]]:
        gaps, clocks = np.full((2, *shape), UNKNOWN, dtype=np.float32)
        for i, known in enumerate(times):
            if known is not None and len(known.events):
                newest = known.newest(self._history_length)
                count = len(newest.events)
                gaps[i, :count], clocks[i, :count] = newest.inputs()
        return {"gaps": gaps, "clocks": clocks}

    def _kinds(self, shape: tuple[int, ...], kinds: Sequence[Kinds | None]) -> dict[str, NDArray[Any]]:
        codes = np.full(shape, -1, dtype=np.int64)
        for i, known in enumerate(kinds):
            if known is not None:
                newest = known[-self._history_length :]
                codes[i, : len(newest)] = newest
        return {"kinds": codes}

    def _check_finite(self, vectors: Vectors) -> None:
        # A finite sum of squares has finite terms, and costs a third of testing each.
        if len(vectors) == 1 and isfinite(np.vdot(vectors, vectors)):
            return
        for i in np.flatnonzero(~np.isfinite(vectors).all(axis=1)):
            message = (
                "the user tower gives no finite vector for these features; send values closer to usual ones"
            )
            raise EncodingError(int(i), "features", None, message)

    def _check_inputs(self) -> None:
        dimension = self._vectors.shape[1]
        times = TIME_INPUTS if self._reads_times else ()
        kinds = ("kinds",) if self._reads_kinds else ()
        self._session.check({"history", "length", *kinds, *times, *self._features.input_names})
        shape = self._session.shapes["history"]
        if len(shape) != 3 or shape[2] not in (dimension, None):
            raise BundleError(
                f"user_tower.onnx reads histories of shape {shape}, but the item vectors have "
                f"{dimension} columns; the tower and the vectors are of different models"
            )


# Items that pass the tower at once: ten thousand at a time would need hundreds of megabytes in between.
_AT_ONCE = 1024


class ItemEncoder:
    """The item tower as ONNX, run on one thread.

    Its inputs are one `feature_<name>` for each item feature, as `FeatureInputs` has them; its output is
    `item_vector` [B, D], scored as the catalog's vectors are (of length 1 for the cosine, the bias last),
    for items whose ids were never trained on.

    Raises BundleError when `model` is not such a tower.
    """

    def __init__(self, model: bytes, dimension: int, features: Sequence[Feature]) -> None:
        self._dimension = dimension
        self._features = FeatureInputs(features, "item")
        self._session = Session(model, "item_tower.onnx", "item_vector")
        if not features:
            raise BundleError(
                "item_tower.onnx is in a bundle without item features; export the bundle again", "parts"
            )
        self._session.check(self._features.input_names)

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features that the tower reads."""
        return self._features.features

    def encode(self, items: Sequence[Mapping[str, object]]) -> Vectors:
        """Return the vectors [B, D] of B items by their raw features; one that is not given is unknown.

        Raises EncodingError for a feature that the tower doesn't have or a value that doesn't fit it,
        BundleError for a tower that can't be run on its own inputs.
        """
        if not items:
            return np.empty((0, self._dimension), dtype=np.float32)
        starts = range(0, len(items), _AT_ONCE)
        return np.concatenate([self._encode(start, items[start : start + _AT_ONCE]) for start in starts])

    def readable(self, given: Mapping[str, object]) -> dict[str, object]:
        """Return those of an item's features that this tower reads, for items sent to another version."""
        return self._features.readable(given)

    def _encode(self, start: int, items: Sequence[Mapping[str, object]]) -> Vectors:
        try:
            inputs = self._features.inputs(items)
        except EncodingError as error:
            raise EncodingError(start + error.position, error.field, error.value, str(error)) from None
        vectors = self._session.run(inputs, (len(items), self._dimension))
        for position in np.flatnonzero(~np.isfinite(vectors).all(axis=1)):
            message = "the item tower gives no finite vector for these features; send more usual values"
            raise EncodingError(start + int(position), "features", None, message)
        return vectors


def open_item_encoder(folder: Path, manifest: Manifest) -> ItemEncoder | None:
    """Open the item tower of the bundle in `folder`; None where it has none: it reads ids alone.

    Raises BundleError, OSError or ValidationError for invalid files.
    """
    if ITEM_TOWER not in manifest.files:
        return None
    model = read_regular(folder / ITEM_TOWER, TOWER_BYTES)
    return ItemEncoder(model, manifest.dimension, read_features(folder / ITEM_FEATURES))
