"""From questions to answers, with one bundle and without waiting for anything."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.schemas import HISTORY_LIMIT, RecommendRequest
from service.slot import Live
from tower.errors import EncodingError
from tower.retriever import Ranking
from tower.times import Times

Answer = dict[str, Any]


@dataclass(frozen=True)
class Question:
    """A request with the history that counts for it, and what had to be done without.

    `times`, if they are known, and `asked` are in milliseconds since 1970: when the items of the history were
    used, and for when the answer is asked.
    """

    request: RecommendRequest
    history: Sequence[int | str]
    times: Sequence[int] | None
    asked: int
    degraded: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Read:
    """A question in rows."""

    question: Question
    rows: NDArray[np.int32]
    times: Times | None
    unknown: list[int | str]
    excluded: NDArray[np.int32]


def recommend(live: Live, questions: Sequence[Question]) -> list[Answer]:
    """Answer every question: by the towers where anything of its history is known, else by popularity.

    Raises EncodingError, with the question's position, for features that the live user tower can't read.
    """
    live.bundle.encoder.check([question.request.features for question in questions])
    read = [_read(live, question) for question in questions]
    rankings = {place: _popular(live, one) for place, one in enumerate(read) if not len(one.rows)}
    by_towers = [place for place, one in enumerate(read) if len(one.rows)]
    rankings |= dict(zip(by_towers, _by_towers(live, read, by_towers), strict=True))
    return [_answer(live, one, rankings[place]) for place, one in enumerate(read)]


def similar(live: Live, row: int, k: int) -> Answer:
    """Answer which items are nearest to the one at `row`."""
    return _ranked(live, live.retriever.similar(row, k), "towers", k)


def _read(live: Live, question: Question) -> _Read:
    request = question.request
    rows, unknown = live.bundle.vocabulary.known_rows(question.history)
    excluded, _ = live.bundle.vocabulary.known_rows(request.exclude)
    if request.exclude_seen:
        excluded = np.concatenate([excluded, rows])
    return _Read(question, rows, _times(live, question), unknown, np.unique(excluded))


def _times(live: Live, question: Question) -> Times | None:
    """When the known items of the history were used, where the live user tower reads it."""
    if question.times is None or not live.bundle.manifest.reads_times:
        return None
    is_known = [live.bundle.vocabulary.row(item) is not None for item in question.history]
    events = np.array(question.times, dtype=np.float64)[is_known]
    return Times(events / 1000.0, question.asked / 1000.0)


def _popular(live: Live, read: _Read) -> Ranking:
    return live.retriever.popular(read.question.request.k, read.excluded)


def _by_towers(live: Live, read: Sequence[_Read], places: Sequence[int]) -> list[Ranking]:
    chosen = [read[place] for place in places]
    try:
        return live.retriever.recommend(
            [one.rows for one in chosen],
            [one.question.request.features for one in chosen],
            max((one.question.request.k for one in chosen), default=1),
            [one.excluded for one in chosen],
            [one.times for one in chosen],
        )
    except EncodingError as error:
        raise EncodingError(places[error.position], error.field, error.value, str(error)) from None


def _answer(live: Live, read: _Read, ranking: Ranking) -> Answer:
    source = "towers" if len(read.rows) else "popular"
    answer = _ranked(live, ranking, source, read.question.request.k)
    answer["degraded"] = list(read.question.degraded)
    if read.unknown:
        answer["unknown_items"] = list(dict.fromkeys(read.unknown))[-HISTORY_LIMIT:]
    return answer


def _ranked(live: Live, ranking: Ranking, source: str, k: int) -> Answer:
    bundle = live.bundle
    pairs = zip(ranking.rows[:k].tolist(), ranking.scores[:k].tolist(), strict=True)
    items = [
        {"id": bundle.vocabulary.id(row), "score": score, "source": source, "fields": bundle.catalog.of(row)}
        for row, score in pairs
    ]
    answer: Answer = {"version": live.version, "items": items}
    if len(items) < k:
        answer["exhausted"] = True
    return answer
