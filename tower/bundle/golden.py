"""Recorded queries and recorded items of a bundle, with the answers and vectors of training."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from turret.data.errors import DataError
from turret.tower.bundle.bundle import Bundle
from turret.tower.config import Settings
from turret.tower.counted_kinds import CountedKinds, ReadHistory, read_history
from turret.tower.errors import BundleError, EncodingError
from turret.tower.format.checksums import FileStamps, file_stamps
from turret.tower.format.listing import version_folder
from turret.tower.format.manifest import GOLDEN
from turret.tower.format.safe_open import read_regular
from turret.tower.retrieval import Ranking, Retriever
from turret.tower.times import Times

GOLDEN_K = 20
K = 10  # the items of an answer whose overlap is measured
# Training records 64 queries in some 100 kB, and 16 items. Reading, checking and encoding a file needs twenty
# times its size.
GOLDEN_BYTES, MOST_RECORDED, LONGEST_HISTORY, _MOST_ITEMS, _WIDEST = 16_000_000, 1024, 100_000, 1000, 65_536
# Float32 sums in another order (torch, ONNX, another processor) differ by about 1e-6 of the largest score;
# a wrong tower or a mixed-up vocabulary by far more than this.
TOLERANCE = 1e-4


class GoldenQuery(Settings):
    """A request of the service, and the ids and scores of its best items, as `replay` answers it.

    `history` are item ids, oldest first, `features` the user's, `context` those of the request.
    `history_kinds` are the kinds of the events. `history_times` and `at` are in seconds since 1970: the times
    of the items and of the request.
    """

    history: tuple[int | str, ...] = Field(max_length=LONGEST_HISTORY)
    features: dict[str, Any] = Field(default={})
    context: dict[str, Any] = Field(default={})
    history_kinds: tuple[str, ...] | None = Field(default=None, max_length=LONGEST_HISTORY)
    history_times: tuple[float, ...] | None = Field(default=None, max_length=LONGEST_HISTORY)
    at: float | None = None
    items: tuple[int | str, ...] = Field(max_length=_MOST_ITEMS)
    scores: tuple[float, ...] = Field(max_length=_MOST_ITEMS)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if not self.history and not self.features:
            raise ValueError("neither a history nor features")
        for name, values in (("times", self.history_times), ("kinds", self.history_kinds)):
            if values is not None and len(values) != len(self.history):
                raise ValueError(f"{len(values)} {name} for {len(self.history)} items")
        return self

    @property
    def inputs(self) -> dict[str, Any]:
        """The features of the user and of the request, as an encoder reads them."""
        return {**self.features, **self.context}

    @property
    def times(self) -> Times | None:
        """The times that the user tower reads, if they are recorded."""
        if self.history_times is None or self.at is None:
            return None
        return Times(np.array(self.history_times, dtype=np.float64), self.at)

    def read_by(self, bundle: Bundle) -> ReadHistory:
        """The history as a bundle reads it; its `kinds` are None if no kinds are recorded."""
        counted, kinds = CountedKinds(bundle.manifest), self.history_kinds
        history = read_history(bundle.vocabulary, counted, self.history, kinds or (), self.times)
        return history._replace(kinds=None) if kinds is None else history


class RecordedItem(Settings):
    """An item of the catalog as the body of `PUT /v1/items/{id}`, and its vector in training.

    `vector` [D] is computed from the features alone, as for an id outside the training.
    """

    id: int | str
    features: dict[str, Any]
    vector: tuple[float, ...] = Field(max_length=_WIDEST)


class Golden(Settings):
    """`golden.json`: queries, and items where there is an item tower."""

    k: int = Field(default=GOLDEN_K, ge=1, le=_MOST_ITEMS)
    queries: tuple[GoldenQuery, ...] = Field(min_length=1, max_length=MOST_RECORDED)
    items: tuple[RecordedItem, ...] = Field(default=(), max_length=MOST_RECORDED)


def load_golden(folder: Path) -> Golden:
    """Read the `golden.json` of a bundle. Raises BundleError when the file holds anything else."""
    path = folder / GOLDEN
    try:
        return Golden.model_validate_json(read_regular(path, GOLDEN_BYTES))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise BundleError(f"{path} holds no recorded queries ({where}: {first['msg']})") from None


def replay(bundle: Bundle, golden: Golden) -> list[Ranking]:
    """Answer the queries as the service does, without the items of their histories.

    A bundle with a repeat term ranks the items of histories, too.

    Raises BundleError naming a query whose items or features the bundle doesn't know.
    """
    index = bundle.index.exact if bundle.manifest.index.is_remote else bundle.index
    retriever, answers = Retriever(bundle, index), list[Ranking]()
    for i, query in enumerate(golden.queries):
        rows, times, kinds, _, unknown = query.read_by(bundle)
        if unknown:
            raise BundleError(
                f"recorded query {i}: the items {unknown[:5]} are not in the vocabulary", "golden"
            )
        out = rows if bundle.manifest.repeats is None else rows[:0]
        try:
            answers += retriever.recommend([rows], [query.inputs], golden.k, [out], [times], kinds=[kinds])
        except EncodingError as error:
            raise BundleError(f"recorded query {i}: {error.field}: {error}", "golden") from None
    return answers


def check_golden(bundle: Bundle) -> None:
    """Replay the bundle's golden queries, and encode its recorded items where it has an item tower.

    Raises BundleError naming the first query with a different answer, or item with a different vector.
    """
    golden = load_golden(bundle.folder)
    for entry, fault in chain(_query_faults(bundle, golden), _item_faults(bundle, golden.items)):
        if fault:
            raise BundleError(
                f"bundle {bundle.manifest.version}, recorded {entry}: {fault}; its files are of different "
                "models, export it again",
                "golden",
            )


def _query_faults(bundle: Bundle, golden: Golden) -> Iterator[tuple[str, str | None]]:
    for i, (query, served) in enumerate(zip(golden.queries, replay(bundle, golden), strict=True)):
        rows, unknown = bundle.vocabulary.known_rows(query.items)
        expected = Ranking(rows.astype(np.int64), np.array(query.scores, dtype=np.float32))
        yield f"query {i}", f"the items {unknown} are unknown" if unknown else difference(expected, served)


def _item_faults(bundle: Bundle, items: Sequence[RecordedItem]) -> Iterator[tuple[str, str | None]]:
    if bundle.item_encoder is None:
        return
    if not items:
        yield "items", "there are none for its item tower"
    try:
        vectors = bundle.item_encoder.encode([item.features for item in items])
    except EncodingError as error:
        raise BundleError(f"recorded item {error.position}: {error.field}: {error}", "golden") from None
    for item, vector in zip(items, vectors, strict=True):
        expected = np.array(item.vector, dtype=np.float32)
        if expected.shape != vector.shape:
            yield f"item {item.id!r}", f"{len(vector)} numbers where {len(expected)} are expected"
        elif not ((apart := np.abs(vector - expected)) <= TOLERANCE * np.abs(expected).max()).all():
            yield f"item {item.id!r}", f"its vector is {np.nanmax(apart):.2g} away from that of training"


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
        actual, wanted = served.scores[i], expected.scores[i]
        return f"the score at position {i + 1} is {actual} where {wanted} is expected"
    scores = dict(zip(served.rows.tolist(), served.scores.tolist(), strict=True))
    for row, score in zip(expected.rows.tolist(), expected.scores.tolist(), strict=True):
        # An item that is not served scores at most as the last served one.
        if abs(score - scores.get(row, float(served.scores[-1]))) > tolerance:
            return f"row {row} of score {score} is not where it is expected"
    return None


def overlap_between(answer: Sequence[int | str], other: Sequence[int | str]) -> float:
    """Return the share of the longer answer that is in the other one; 1 for two empty answers."""
    longest = max(len(answer), len(other))
    return len(set(map(str, answer)) & set(map(str, other))) / longest if longest else 1.0


def mean_overlap(bundle: Bundle, recorded: Sequence[GoldenQuery]) -> float:
    """Answer another version's recorded queries, and return the mean overlap at 10 with its answers.

    It reads the recorded events as in service, with their times and kinds, and merged. A history without
    known items, or that it can't encode, has overlap 0. Features that it doesn't read are left out, and so
    are items of histories unless the other version ranked some.
    """
    retriever = Retriever(bundle)
    names = {feature.name for feature in bundle.user_features}
    ranks_history = any(not set(query.history).isdisjoint(query.items) for query in recorded)
    overlaps = []
    for query in recorded:
        features = {name: value for name, value in query.inputs.items() if name in names}
        ranking: Ranking | None = None
        with suppress(EncodingError, DataError):
            rows, times, kinds, _, _ = query.read_by(bundle)
            out = rows[:0] if ranks_history else rows
            if bundle.encoder.can_encode(rows, features):
                (ranking,) = retriever.recommend([rows], [features], K, [out], [times], kinds=[kinds])
        answer = bundle.vocabulary.ids(ranking.rows) if ranking else []
        overlaps.append(overlap_between(query.items[:K], answer))
    return sum(overlaps) / len(overlaps) if overlaps else 1.0


def load(root: Path, version: str, content: str | None = None, checked: FileStamps | None = None) -> Bundle:
    """Open `<root>/<version>` with all checks: checksums, shapes, recorded queries.

    `content` is the SHA-256 that its `manifest.json` must have. `checked` are the stamps of its files from
    before another process has compared the checksums and the recorded queries: unless a file has changed
    since, neither is compared again. Raises BundleError with the reason when the bundle can't be served.
    """
    folder = version_folder(root, version)
    bundle = Bundle.open(folder, verify=checked is None, content=content)
    if bundle.manifest.version != version:
        raise BundleError(f"{folder} holds version {bundle.manifest.version!r}; rename it to that")
    if checked is None:
        check_golden(bundle)
    elif file_stamps(folder) != checked:
        message = f"files of version {version} changed while it was checked; activate it again"
        raise BundleError(message, "checksum")
    bundle.check_unchanged()
    return bundle
