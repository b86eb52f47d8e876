"""Recorded queries and their answers: the proof that tower, vectors, vocabulary and index belong together."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from data.errors import DataError
from tower.errors import BundleError, EncodingError
from tower.regular import read_regular
from tower.retriever import Ranking, Retriever
from tower.times import Times

if TYPE_CHECKING:
    from tower.bundle import Bundle

GOLDEN_K = 20
_GOLDEN_BYTES = 100_000_000
# Float32 sums in another order (torch, ONNX, another processor) differ by about 1e-6 of the largest score;
# a wrong tower or a mixed-up vocabulary by far more than this.
TOLERANCE = 1e-4


class RecordedQuery(BaseModel):
    """A question as the service would get it: item ids, oldest first, and user features.

    `history_times` and `at` are in seconds since 1970: when the items were used and when the question comes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    history: tuple[int | str, ...] = Field(min_length=1)
    features: dict[str, Any] = {}
    history_times: tuple[float, ...] | None = None
    at: float | None = None

    @model_validator(mode="after")
    def _each_item_has_a_time(self) -> "RecordedQuery":
        if self.history_times is not None and len(self.history_times) != len(self.history):
            raise ValueError(f"{len(self.history_times)} times for {len(self.history)} items")
        return self

    @property
    def times(self) -> Times | None:
        """The times that the user tower reads, if they are recorded."""
        if self.history_times is None or self.at is None:
            return None
        return Times(np.array(self.history_times, dtype=np.float64), self.at)


class GoldenQuery(RecordedQuery):
    """A recorded query and the ids and scores of its best items, those of the history left out."""

    items: tuple[int | str, ...]
    scores: tuple[float, ...]


class Golden(BaseModel):
    """`golden.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    k: int = Field(ge=1)
    queries: tuple[GoldenQuery, ...] = Field(min_length=1)


def replay(bundle: "Bundle", queries: Sequence[RecordedQuery], k: int) -> list[Ranking]:
    """Answer the queries as the service does by default, that is, without the items of their histories.

    Raises BundleError naming a query whose items or features the bundle doesn't know.
    """
    histories = [_known(bundle, place, query) for place, query in enumerate(queries)]
    try:
        features, times = [query.features for query in queries], [query.times for query in queries]
        return Retriever(bundle).recommend(histories, features, k, histories, times)
    except EncodingError as error:
        raise BundleError(f"recorded query {error.position}: {error.field}: {error}", "answers") from None


def record(bundle: "Bundle", queries: Sequence[RecordedQuery], answers: Sequence[Ranking], k: int) -> Golden:
    """Write queries down with their answers."""
    return Golden(
        k=k,
        queries=tuple(
            GoldenQuery(
                **query.model_dump(),
                items=tuple(bundle.vocabulary.ids(answer.rows)),
                scores=tuple(map(float, answer.scores)),
            )
            for query, answer in zip(queries, answers, strict=True)
        ),
    )


def check_golden(bundle: "Bundle") -> None:
    """Replay the bundle's golden queries. Raises BundleError naming the first with another answer."""
    golden = load_golden(bundle.folder / "golden.json")
    answers = replay(bundle, golden.queries, golden.k)
    for place, (query, served) in enumerate(zip(golden.queries, answers, strict=True)):
        rows, unknown = bundle.vocabulary.known_rows(query.items)
        expected = Ranking(rows.astype(np.int64), np.array(query.scores, dtype=np.float32))
        fault = f"the items {unknown} are unknown" if unknown else difference(expected, served)
        if fault:
            raise BundleError(
                f"bundle {bundle.manifest.version} doesn't answer its recorded query {place} as it did "
                f"when it was "
                f"published: {fault}; its files are of different models, export it again",
                "answers",
            )


def difference(expected: Ranking, served: Ranking) -> str | None:
    """Say how two rankings differ by more than rounding, or return None if they don't.

    Scores may differ by `TOLERANCE` of the largest expected one, and items may change places, or fall off
    the end, where their scores are that near.
    """
    if len(expected.rows) != len(served.rows):
        return f"{len(served.rows)} items where {len(expected.rows)} are expected"
    if not len(expected.rows):
        return None
    tolerance = TOLERANCE * float(np.abs(expected.scores).max())
    apart = ~(np.abs(expected.scores - served.scores) <= tolerance)  # so that NaN is a difference
    if apart.any():
        place = int(np.argmax(apart))
        found, wanted = served.scores[place], expected.scores[place]
        return f"the score at place {place + 1} is {found} where {wanted} is expected"
    scores = dict(zip(served.rows.tolist(), served.scores.tolist(), strict=True))
    for row, score in zip(expected.rows.tolist(), expected.scores.tolist(), strict=True):
        # What isn't among the served ones can at most score as the last of them does.
        if abs(score - scores.get(row, float(served.scores[-1]))) > tolerance:
            return f"row {row} of score {score} is not where it is expected"
    return None


def load_golden(path: Path) -> Golden:
    """Read `golden.json`. Raises BundleError when it is anything else."""
    try:
        return Golden.model_validate_json(read_regular(path, _GOLDEN_BYTES))
    except ValidationError as error:
        raise BundleError(f"{path} holds no recorded queries ({error.errors()[0]['msg']})") from None


def save_golden(path: Path, golden: Golden) -> None:
    """Write `golden.json`."""
    path.write_text(json.dumps(golden.model_dump(mode="json"), ensure_ascii=False), encoding="utf-8")


def _known(bundle: "Bundle", place: int, query: RecordedQuery) -> NDArray[np.int32]:
    try:
        rows, unknown = bundle.vocabulary.known_rows(query.history)
    except DataError as error:
        raise BundleError(f"recorded query {place}: {error}", "answers") from None
    if unknown:
        raise BundleError(
            f"recorded query {place}: the items {unknown[:5]} are not in the vocabulary", "answers"
        )
    return rows
