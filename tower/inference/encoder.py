"""Both towers by ONNX Runtime: from histories, and from the features of untrained items, to vectors."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import zip_longest
from math import isfinite
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from turret.data.features.feature import Feature
from turret.tower.errors import BundleError, EncodingError
from turret.tower.format.manifest import ModelCard
from turret.tower.hostile import check_onnx
from turret.tower.inference.feature_inputs import FeatureInputs
from turret.tower.times import TIME_INPUTS, UNKNOWN, Times

# The size limit of a tower's file. Exported towers are far smaller, the memory of a machine is far larger.
TOWER_BYTES = 2_000_000_000
_OPTIONS = {
    # This is a second line of defence behind `check_onnx`. /dev/null is no folder, so it holds no file; the
    # default is the working directory.
    "session.model_external_initializers_file_folder_path": "/dev/null",
    "session.load_model_format": "ONNX",
}


class Session:
    """A tower as ONNX with one float32 output, of vectors for each of B inputs.

    Error messages name the file by `name`. A session that `keeps_memory` reuses the memory of its largest
    run, which is faster. Raises BundleError when `model` can't be run, could do anything but compute (see
    `tower.hostile`), reads other inputs than `inputs`, or has no such output.
    """

    def __init__(
        self, model: bytes, name: str, output: str, inputs: set[str], keeps_memory: bool = True
    ) -> None:
        self._name = name
        check_onnx(model, name)
        options = onnxruntime.SessionOptions()
        # One query is far too small to share between threads; many queries run beside each other.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = options.enable_mem_pattern = keeps_memory
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
        if set(self.shapes) != inputs:
            raise BundleError(f"{name} reads {sorted(self.shapes)}, but its bundle gives {sorted(inputs)}")
        if output not in {entry.name for entry in session.get_outputs()}:
            raise BundleError(f"{name} has no output {output!r}; export the bundle again")

    def run(self, inputs: dict[str, NDArray[Any]], shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return the tower's vectors.

        Raises BundleError when the tower can't be run, or its vectors have another shape.
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


Rows = NDArray[np.integer[Any]]
Kinds = NDArray[np.integer[Any]]
Vectors = NDArray[np.float32]
# The largest batch, and the least number of steps that histories are padded to.
TOGETHER, _LEAST_STEPS = 16, 8
_NOTHING: Mapping[str, object] = {}
# Long histories take long: `is_steady` tries only some batch sizes for them.
_LONG, _SOME = 64, (2, 3, 5, 7)


class Encoder:
    """The user tower as ONNX, run on one thread.

    The inputs of the tower are `history` float32 [B, T, D] (the item vectors of the newest rows, oldest
    first, then zeros), `length` int64 [B] and one `feature_<name>` for each user feature, as `FeatureInputs`
    has them. A tower that `reads_times` also has `gaps` and `clocks` float32 [B, T], the seconds that
    `tower.times.time_inputs` gives, -1 where they are unknown; one that `reads_kinds` has `kinds` int64
    [B, T], the codes of `data.kinds`, -1 where they are unknown. The output is `user_vector` [B, D], or
    [B, I, D] for `interests` = I above 1.

    Raises BundleError when `model` is not such a tower of the model that `card` describes.
    """

    def __init__(self, model: bytes, vectors: Vectors, features: Sequence[Feature], card: ModelCard) -> None:
        # A plain view of a memory map is faster to access.
        self._vectors = np.asarray(vectors)
        self._history_length = card.history_length
        self._card = card
        self._features = FeatureInputs(features, "user", card.context)
        inputs = {"history", "length", *self._features.input_names}
        inputs |= {"kinds"} if card.reads_kinds else set()
        inputs |= set(TIME_INPUTS) if card.reads_times else set()
        self._session = Session(model, "user_tower.onnx", "user_vector", inputs)
        shape, dimension = self._session.shapes["history"], self._vectors.shape[1]
        if len(shape) != 3 or shape[2] not in (dimension, None):
            raise BundleError(
                f"user_tower.onnx reads histories of shape {shape}, but the item vectors have "
                f"{dimension} columns; the tower and the vectors are of different models"
            )
        # The shape of the vectors of one user.
        self.shape = (dimension,) if card.interests == 1 else (card.interests, dimension)

    def can_encode(self, rows: Rows, features: Mapping[str, object]) -> bool:
        """Whether a history of these rows, or a query of these features, says anything.

        A history does by a known item, a query by a known gram or by a ready vector. Other requests are
        answered by popularity.
        """
        return self._features.any_known(features) if self._card.reads_queries else len(rows) > 0

    def encode(
        self,
        histories: Sequence[Rows],
        features: Sequence[Mapping[str, object]],
        times: Sequence[Times | None] | None = None,
        more: Vectors | None = None,
        kinds: Sequence[Kinds | None] | None = None,
    ) -> Vectors:
        """Return the user vectors [B, D] of B histories of rows (oldest first), each with its features.

        Of a tower with several interests they are [B, I, D].

        `times` says when the rows of each were used, and `kinds` has the codes of their kinds (`data.kinds`,
        -1 for unknown ones), if that is known; a tower that reads no times or kinds leaves them alone. `more`
        [M, D] holds the vectors of the rows from N on: items that are not in the bundle. A feature that is
        not given counts as unknown.

        A tower that `reads_sets` reads each of the newest rows once, with its first kind.

        A vector is bitwise independent of the other histories. Rounding depends on the batch size and on
        padding, so histories of equal padded length are encoded together, a lone one twice; a tower that is
        not `is_steady`, and one that reads features or times, encodes each alone.

        Raises EncodingError for a feature that the tower doesn't have or a value that doesn't fit it,
        BundleError for a tower that can't be run on its own inputs.
        """
        times, kinds = times or [None] * len(histories), kinds or [None] * len(histories)
        if self._card.reads_sets:
            sets = [self._set(rows, codes) for rows, codes in zip(histories, kinds, strict=True)]
            histories, kinds = [rows for rows, _ in sets], [codes for _, codes in sets]
        vectors = np.empty((len(histories), *self.shape), dtype=np.float32)
        if self._features.features or any(features) or not self.is_steady:
            for i, rows in enumerate(histories):
                inputs = self._inputs([rows], more, 1, [kinds[i]])
                inputs |= self._features.inputs(features[i : i + 1], first=i)
                if self._card.reads_times:
                    inputs |= self._times(inputs["history"].shape[:2], times[i])
                vectors[i] = self._session.run(inputs, (1, *self.shape))[0]
        else:
            for indices in self._groups(histories):
                pair = indices if len(indices) > 1 else indices * 2
                steps = self._steps(len(histories[indices[0]]))
                inputs = self._inputs([histories[i] for i in pair], more, steps, [kinds[i] for i in pair])
                vectors[indices] = self._session.run(inputs, (len(pair), *self.shape))[: len(indices)]
        # A finite sum of squares has finite terms, and costs a third of testing each.
        if not isfinite(np.vdot(vectors, vectors)):
            _check_finite(vectors, "user")
        return vectors

    @cached_property
    def is_steady(self) -> bool:
        """Whether batches of up to `TOGETHER` histories of equal length gave the same bits as batches of two.

        False for a tower that reads times: the last few sines of an array, which don't fill a register, are
        computed otherwise, and only some values show it, so that a trial proves nothing.
        """
        if self._card.reads_times:
            return False
        every = {self._steps(count) for count in range(1, self._history_length + 1)}
        try:
            return all(map(self._is_steady, every))
        except BundleError:  # a tower that takes one history at a time
            return False

    def _is_steady(self, steps: int) -> bool:
        rows = np.resize(np.arange(len(self._vectors)), (TOGETHER, steps))
        inputs = self._inputs(list(rows), None, steps, list(rows % 2))
        every = self._session.run(inputs, (TOGETHER, *self.shape))
        for count in range(2, TOGETHER) if steps <= _LONG else _SOME:
            some = {name: values[:count].copy() for name, values in inputs.items()}
            if not np.array_equal(self._session.run(some, (count, *self.shape)), every[:count]):
                return False
        return True

    def _groups(self, histories: Sequence[Rows]) -> list[list[int]]:
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

    def check(
        self, features: Sequence[Mapping[str, object]], contexts: Sequence[Mapping[str, object]] = ()
    ) -> None:
        """Raise EncodingError for features that `encode` would refuse, without encoding any history.

        Those of a request's context are in `contexts`, if there are any, and not among its user's features.
        """
        for i, (query, context) in enumerate(zip_longest(features, contexts, fillvalue=_NOTHING)):
            if query or context:
                self._features.check_fields(i, query, context)
                self._features.encode(i, {**query, **context})

    def gather(self, rows: Rows, more: Vectors | None = None) -> Vectors:
        """Return the item vectors [B, D] of rows [B]; rows from N on are of `more`, as in `encode`."""
        count = len(self._vectors)
        if more is None or not len(rows) or rows.max() < count:
            vectors: Vectors = self._vectors.take(rows, axis=0)
            return vectors
        is_more = rows >= count
        gathered = np.empty((len(rows), self._vectors.shape[1]), dtype=np.float32)
        gathered[~is_more] = self._vectors[rows[~is_more]]
        gathered[is_more] = more[rows[is_more] - count]
        return gathered

    def _set(self, rows: Rows, kinds: Kinds | None) -> tuple[Rows, Kinds | None]:
        """The first use of each of the newest rows, and the kind of this use."""
        newest = slice(-self._history_length, None)
        firsts = np.sort(np.unique(rows[newest], return_index=True)[1])
        return rows[newest][firsts], None if kinds is None else kinds[newest][firsts]

    def _inputs(
        self, histories: Sequence[Rows], more: Vectors | None, steps: int, kinds: Sequence[Kinds | None]
    ) -> dict[str, NDArray[Any]]:
        """The inputs of histories and their kinds, padded to at least `steps`."""
        newest = [rows[-self._history_length :] for rows in histories]
        lengths = [len(rows) for rows in newest]
        steps = max(steps, *lengths)
        shape = len(newest), steps, self._vectors.shape[1]
        gathered = self.gather(np.concatenate(newest), more)
        if min(lengths) == steps:
            stacked = gathered.reshape(shape)
        else:
            stacked = np.zeros(shape, dtype=np.float32)
            stacked[np.arange(steps) < np.array(lengths)[:, np.newaxis]] = gathered
        inputs: dict[str, NDArray[Any]] = {"history": stacked, "length": np.array(lengths, dtype=np.int64)}
        if self._card.reads_kinds:
            inputs["kinds"] = np.full(shape[:2], -1, dtype=np.int64)
            for i, known in enumerate(kinds):
                if known is not None:
                    codes = known[-self._history_length :]
                    inputs["kinds"][i, : len(codes)] = codes
        return inputs

    def _times(self, shape: tuple[int, ...], times: Times | None) -> dict[str, NDArray[Any]]:
        gaps, clocks = np.full((2, *shape), UNKNOWN, dtype=np.float32)
        if times is not None and len(times.events):
            newest = times.newest(self._history_length)
            count = len(newest.events)
            gaps[0, :count], clocks[0, :count] = newest.inputs()
        return {"gaps": gaps, "clocks": clocks}


def _check_finite(vectors: Vectors, tower: str) -> None:
    for i in np.flatnonzero(~np.isfinite(vectors.reshape(len(vectors), -1)).all(axis=1)):
        message = f"the {tower} tower gives no finite vector for these features; send more usual values"
        raise EncodingError(int(i), "features", None, message)


class ItemEncoder:
    """The item tower as ONNX, run on one thread.

    The inputs of the tower are one `feature_<name>` for each item feature, as `FeatureInputs` has them; its
    output is `item_vector` [B, D], scored as the catalog's vectors are (of length 1 for the cosine, the bias
    last), for items whose ids were never trained on.

    Raises BundleError when `model` is not such a tower.
    """

    def __init__(self, model: bytes, dimension: int, features: Sequence[Feature]) -> None:
        self._dimension = dimension
        self._inputs = FeatureInputs(features, "item")
        self.features = self._inputs.features
        self.readable = self._inputs.readable  # for items that were sent to another version
        self.from_columns, self.as_fields = self._inputs.from_columns, self._inputs.as_fields
        self.reads = self._inputs.reads
        if not features:
            raise BundleError("item_tower.onnx is in a bundle without item features; export the bundle again")
        self._session = Session(model, "item_tower.onnx", "item_vector", self._inputs.input_names, False)

    def encode(self, items: Sequence[Mapping[str, object]]) -> Vectors:
        """Return the vectors [B, D] of B items by their raw features; a feature that is not given is unknown.

        Raises EncodingError for a feature that the tower doesn't have or a value that doesn't fit it,
        BundleError for a tower that can't be run on its own inputs.
        """
        vectors = np.empty((len(items), self._dimension), dtype=np.float32)
        for positions, inputs in self._inputs.blocks(items):
            vectors[positions] = self._session.run(inputs, (len(positions), self._dimension))
        _check_finite(vectors, "item")
        return vectors
