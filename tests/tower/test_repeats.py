"""The repeat term: gains as loops give them, and rankings of a bundle that has one."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from tests.support.repeats import TERM, gains, ranking, repeating
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.publish import publish
from turret.tower.catalog.masks import RowMask
from turret.tower.repeats import EVENTS, Events, RepeatWeights, used_items
from turret.tower.retrieval import Retriever
from turret.tower.times import Times

RANDOM = np.random.default_rng(5)
POPULARITY = np.arange(30, 0, -1)
HISTORIES = [RANDOM.integers(0, 40, size).tolist() for size in (1, 2, 9, 64, 300)]
TIMES = [np.sort(RANDOM.integers(0, 90 * 86_400, len(rows))).astype(float).tolist() for rows in HISTORIES]
ASKED = [times[-1] + wait for times, wait in zip(TIMES, (0, 59, 60, 86_400, 3e7), strict=True)]


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("kinded", [False, True])
def test_gains_are_those_of_loops_over_the_events(timed: bool, kinded: bool) -> None:
    for rows, times, asked in zip(HISTORIES, TIMES, ASKED, strict=True):
        kinds = RANDOM.integers(-1, 2, len(rows)) if kinded else None  # -1: of no known kind
        scores = RANDOM.normal(size=40).astype(np.float32)
        when = Times(np.array(times), asked) if timed else None
        bonus = TERM.bonus(np.array(rows), POPULARITY, when, kinds)
        found = bonus.gains(np.arange(40), scores)
        beside = (times if timed else None, asked, None if kinds is None else kinds.tolist())
        expected = gains(rows, scores.astype(np.float64), POPULARITY, *beside)
        assert found == pytest.approx([expected.get(row, 0.0) for row in range(40)], rel=1e-5, abs=1e-5)


def test_a_history_gains_the_same_alone_and_among_others() -> None:
    """To the last bit, as the evaluation reads many histories at once and the service one."""
    lengths = np.array([len(rows) for rows in HISTORIES])
    events = Events(np.concatenate(HISTORIES), lengths, np.concatenate(TIMES), np.array(ASKED))
    used = used_items(events, POPULARITY)
    together = TERM.weights(events).values(used)
    for owner, (rows, times, asked) in enumerate(zip(HISTORIES, TIMES, ASKED, strict=True)):
        alone = TERM.bonus(np.array(rows), POPULARITY, Times(np.array(times), asked))
        assert used.rows[used.owners == owner].tolist() == alone.rows.tolist()
        assert together[used.owners == owner].tobytes() == alone.values.tobytes()


def test_the_newest_events_of_a_long_history_are_read() -> None:
    long = np.concatenate([np.full(50, 39), np.resize(np.arange(7), EVENTS)])
    assert TERM.bonus(long, POPULARITY).rows.tolist() == list(range(7))


def test_a_bundle_ranks_used_items_by_their_scores_with_gains(tmp_path: Path) -> None:
    """As sorting all scores does; with items left out, among allowed ones, and in a batch."""
    contents = repeating()
    bundle = Bundle.open(publish(tmp_path, contents))
    retriever, nothing = Retriever(bundle), np.empty(0, np.int64)
    histories = [np.array([0, 5, 5, 9]), np.array([59, 2, 30, 1, 2, 8, 8])]
    known = [Times(np.arange(float(len(rows))) * 5e5, 4e6) for rows in histories]
    for times in (known, [None, None]):
        answers = retriever.recommend(histories, [{}] * 2, 20, [nothing] * 2, times)
        vectors = retriever.encode(histories, [{}] * 2)
        bonuses = retriever.bonus_of_each(histories, times)
        together = retriever.nearest_of_each(vectors, [20, 20], [nothing] * 2, bonuses)
        for answer, batched, rows, when in zip(answers, together, histories, times, strict=True):
            beside = () if when is None else (when.events.tolist(), when.asked)
            order, scores = ranking(contents, rows.tolist(), *beside)
            assert answer.rows.tolist() == batched.rows.tolist() == order[:20].tolist()
            assert answer.scores == pytest.approx(scores[:20], rel=1e-4, abs=1e-5)
    order, _ = ranking(contents, histories[1].tolist())
    out, mask = np.array([8, 59, 3]), np.arange(60) % 3 != 1
    (left,) = retriever.recommend(histories[1:], [{}], 60, [out], allowed=RowMask(mask))
    assert left.rows.tolist() == [row for row in order.tolist() if mask[row] and row not in out]


def test_weights_of_other_features_are_refused() -> None:
    with pytest.raises(ValidationError, match="another release"):
        RepeatWeights(classes={"recency": (1.0, 2.0)})
    with pytest.raises(ValidationError, match="another release"):
        RepeatWeights(numbers={"weather": 1.0})
