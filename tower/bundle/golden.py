"""Recorded queries and recorded items of a bundle, with the answers and vectors of training."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, model_validator

from turret.data.errors import DataError
from turret.data.kinds import kind_codes
from turret.data.vocabulary import Vocabulary
from turret.tower.config import Settings
from turret.tower.errors import BundleError, EncodingError
from turret.tower.format.manifest import GOLDEN_ITEMS, Manifest
from turret.tower.format.safe_open import read_regular
from turret.tower.inference.encoder import ItemEncoder
from turret.tower.retrieval import Ranking, Retrievable, Retriever
from turret.tower.times import Times

GOLDEN_K = 20
# Training records 64 queries in some 100 kB. Read, checked and encoded, a file needs twenty times its size.
GOLDEN_BYTES, MOST_QUERIES, LONGEST_HISTORY, _MOST_ITEMS = 16_000_000, 1024, 100_000, 1000
# Float32 sums in another order (torch, ONNX, another processor) differ by about 1e-6 of the largest score;
# a wrong tower or a mixed-up vocabulary by far more than this.
TOLERANCE = 1e-4
M = TypeVar("M", bound=BaseModel)


class GoldenBundle(Retrievable, Protocol):
    """The parts of a bundle that recorded queries and items are compared with."""

    folder: Path
    vocabulary: Vocabulary
    item_encoder: ItemEncoder | None


class RecordedQuery(Settings):
    """A request of the service: item ids, oldest first, and user features.

    `history_kinds` are the kinds of the events. `history_times` and `at` are in seconds since 1970: the times
    of the items and of the request.
    """

    history: tuple[int | str, ...] = Field(max_length=LONGEST_HISTORY)
    features: dict[str, Any] = Field(default={})
    history_kinds: tuple[str, ...] | None = Field(default=None, max_length=LONGEST_HISTORY)
    history_times: tuple[float, ...] | None = Field(default=None, max_length=LONGEST_HISTORY)
    at: float | None = None

    @model_validator(mode="after")
    def _says_something(self) -> "RecordedQuery":
        if not self.history and not self.features:
            raise ValueError("neither a history nor features")
        return self

    @model_validator(mode="after")
    def _each_item_has_one(self) -> "RecordedQuery":
        for name, values in (("times", self.history_times), ("kinds", self.history_kinds)):
            if values is not None and len(values) != len(self.history):
                raise ValueError(f"{len(values)} {name} for {len(self.history)} items")
        return self

    @property
    def times(self) -> Times | None:
        """The times that the user tower reads, if they are recorded."""
        if self.history_times is None or self.at is None:
            return None
        return Times(np.array(self.history_times, dtype=np.float64), self.at)

    def kinds(self, manifest: Manifest) -> NDArray[np.int64] | None:
        """The codes that the user tower of a bundle reads, if kinds are recorded."""
        return None if self.history_kinds is None else kind_codes(manifest.kinds, self.history_kinds)


class GoldenQuery(RecordedQuery):
    """A recorded query and the ids and scores of its best items, as `replay` answers it."""

    items: tuple[int | str, ...] = Field(max_length=_MOST_ITEMS)
    scores: tuple[float, ...] = Field(max_length=_MOST_ITEMS)


class Golden(Settings):
    """`golden.json`."""

    k: int = Field(ge=1, le=_MOST_ITEMS)
    queries: tuple[GoldenQuery, ...] = Field(min_length=1, max_length=MOST_QUERIES)


def replay(bundle: GoldenBundle, queries: Sequence[RecordedQuery], k: int) -> list[Ranking]:
    """Answer the queries as the service does, without the items of their histories.

    A bundle with a repeat term ranks these too.

    Raises BundleError naming a query whose items or features the bundle doesn't know.
    """
    index = bundle.index.exact if bundle.manifest.index.is_remote else bundle.index
    retriever, answers = Retriever(bundle, index), list[Ranking]()
    for i, query in enumerate(queries):
        rows = _known(bundle, i, query)
        kinds = query.kinds(bundle.manifest)
        try:
            out = [rows if bundle.manifest.repeats is None else rows[:0]]
            answers += retriever.recommend([rows], [query.features], k, out, [query.times], kinds=[kinds])
        except EncodingError as error:
            raise BundleError(f"recorded query {i}: {error.field}: {error}", "answers") from None
    return answers


def record(
    bundle: GoldenBundle, queries: Sequence[RecordedQuery], answers: Sequence[Ranking], k: int
) -> Golden:
    """Combine queries with their answers."""
    return Golden(
        k=k,
        queries=tuple(
            GoldenQuery(
                **query.model_dump(exclude={"items", "scores"}),
                items=tuple(bundle.vocabulary.ids(answer.rows)),
                scores=tuple(map(float, answer.scores)),
            )
            for query, answer in zip(queries, answers, strict=True)
        ),
    )


def check_golden(bundle: GoldenBundle) -> None:
    """Replay the bundle's golden queries, and its recorded items where it has an item tower.

    Raises BundleError naming the first with a different answer.
    """
    check_golden_items(bundle)
    golden = load_golden(bundle.folder / "golden.json")
    answers = replay(bundle, golden.queries, golden.k)
    for i, (query, served) in enumerate(zip(golden.queries, answers, strict=True)):
        rows, unknown = bundle.vocabulary.known_rows(query.items)
        expected = Ranking(rows.astype(np.int64), np.array(query.scores, dtype=np.float32))
        fault = f"the items {unknown} are unknown" if unknown else difference(expected, served)
        if fault:
            raise BundleError(
                f"bundle {bundle.manifest.version} doesn't answer its recorded query {i} as it did "
                f"when it was published: {fault}; its files are of different models, export it again",
                "answers",
            )


def difference(expected: Ranking, served: Ranking) -> str | None:
    """Describe how two rankings differ by more than rounding; None if they don't.

    Scores may differ by `TOLERANCE` of the largest expected one, and items whose scores are that
    close may swap or drop off the end.
    """
    if len(expected.rows) != len(served.rows):
        return f"{len(served.rows)} items where {len(expected.rows)} are expected"
    if not len(expected.rows):
        return None
    tolerance = TOLERANCE * float(np.abs(expected.scores).max())
    apart = ~(np.abs(expected.scores - served.scores) <= tolerance)  # so that NaN is a difference
    if apart.any():
        i = int(np.argmax(apart))
        found, wanted = served.scores[i], expected.scores[i]
        return f"the score at position {i + 1} is {found} where {wanted} is expected"
    scores = dict(zip(served.rows.tolist(), served.scores.tolist(), strict=True))
    for row, score in zip(expected.rows.tolist(), expected.scores.tolist(), strict=True):
        # An item that is not served scores at most as the last served one.
        if abs(score - scores.get(row, float(served.scores[-1]))) > tolerance:
            return f"row {row} of score {score} is not where it is expected"
    return None


def load_golden(path: Path) -> Golden:
    """Read `golden.json`. Raises BundleError when it is anything else."""
    return _read(path, Golden, "queries")


def _read(path: Path, kind: type[M], of: str) -> M:
    try:
        return kind.model_validate_json(read_regular(path, GOLDEN_BYTES))
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise BundleError(f"{path} holds no recorded {of} ({reason})", "parts") from None


def save_golden(path: Path, golden: Golden) -> None:
    """Write `golden.json`, which is replayed before it is published."""
    path.write_text(json.dumps(golden.model_dump(mode="json"), ensure_ascii=False), encoding="utf-8")


def recorded_queries(given: Sequence[Mapping[str, Any]]) -> list[RecordedQuery]:
    """Read queries that training has recorded.

    Raises BundleError for an invalid one, and for more than are checked at every opening.
    """
    if len(given) > MOST_QUERIES:
        raise BundleError(f"{len(given)} queries are recorded, and {MOST_QUERIES} is the most; record fewer")
    try:
        return TypeAdapter(list[RecordedQuery]).validate_python(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise BundleError(f"recorded query {where}: {first['msg']}; record others") from None


def _known(bundle: GoldenBundle, i: int, query: RecordedQuery) -> NDArray[np.int32]:
    try:
        rows, unknown = bundle.vocabulary.known_rows(query.history)
    except DataError as error:
        raise BundleError(f"recorded query {i}: {error}", "answers") from None
    if unknown:
        raise BundleError(f"recorded query {i}: the items {unknown[:5]} are not in the vocabulary", "answers")
    return rows


# Relative to the largest coordinate: far above rounding, and far below the difference of another tower.
# Training records 16 items.
_MOST_RECORDED, _WIDEST = 1024, 65_536


class RecordedItem(Settings):
    """An item of the catalog as the body of `PUT /v1/items/{id}`, and its vector in training.

    `vector` [D] is of its features alone, as for an id outside the training.
    """

    id: int | str
    features: dict[str, Any]
    vector: tuple[float, ...] = Field(max_length=_WIDEST)


class GoldenItems(Settings):
    """`golden_items.json`."""

    items: tuple[RecordedItem, ...] = Field(min_length=1, max_length=_MOST_RECORDED)


def record_items(folder: Path, items: tuple[RecordedItem, ...], vocabulary: Vocabulary) -> None:
    """Write `golden_items.json`.

    Raises BundleError when there is none, too many, or one isn't in the vocabulary.
    """
    unknown = vocabulary.known_rows(item.id for item in items)[1]
    if unknown or not 0 < len(items) <= _MOST_RECORDED:
        raise BundleError(
            f"an item tower comes with 1 to {_MOST_RECORDED} recorded items of the catalog; there are "
            f"{len(items)}, of which {unknown[:5] or 'none'} are unknown: record others"
        )
    (folder / GOLDEN_ITEMS).write_text(GoldenItems(items=items).model_dump_json(), encoding="utf-8")


def check_golden_items(bundle: GoldenBundle) -> None:
    """Encode the recorded items of a bundle with an item tower, and compare.

    Raises BundleError naming the first whose vector differs from the record.
    """
    if bundle.item_encoder is None:
        return
    golden = _read(bundle.folder / GOLDEN_ITEMS, GoldenItems, "items")
    try:
        vectors = bundle.item_encoder.encode([item.features for item in golden.items])
    except EncodingError as error:
        raise BundleError(
            f"{GOLDEN_ITEMS}: item {error.position}: {error.field}: {error}; export the bundle again",
            "answers",
        ) from None
    for item, vector in zip(golden.items, vectors, strict=True):
        fault = _difference(np.array(item.vector, dtype=np.float32), vector)
        if fault:
            raise BundleError(
                f"the item tower of bundle {bundle.manifest.version} encodes item {item.id!r} differently "
                f"than in training: {fault}; its files are of different models, export it again",
                "answers",
            )


def _difference(expected: NDArray[np.float32], vector: NDArray[np.float32]) -> str | None:
    if expected.shape != vector.shape:
        return f"a vector of {len(vector)} numbers where {len(expected)} are expected"
    apart = np.abs(vector - expected)
    if not (apart <= TOLERANCE * np.abs(expected).max()).all():  # NaN is a difference
        return f"its vector is {np.nanmax(apart):.2g} away from the recorded one"
    return None
