"""The choice of an index for a catalog, by its size, the lengths of its vectors and measurements on them."""

import time
from collections.abc import Callable
from math import inf, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turret.tower.config import ScoringConfig
from turret.tower.errors import BundleError
from turret.tower.format.index_settings import (
    ApproximateSettings,
    HnswSettings,
    IndexSettings,
    IvfPqSettings,
    IvfSettings,
    RabitqSettings,
    ScalarSettings,
    SearchParams,
)
from turret.tower.format.manifest import IndexChoice, MeasuredRecall
from turret.tower.index.approximate import ApproximateIndex
from turret.tower.index.faiss_calls import faiss
from turret.tower.index.index import ExactIndex, Index
from turret.tower.index.kinds import are_equal, spread
from turret.tower.index.planner import Planner
from turret.tower.tuning.recall import (
    EXACT_QUERIES,
    check_recall,
    check_requested,
    measure_recall,
    split_queries,
)
from turret.tower.tuning.search_params import Task, serves_usual, tuned

# An exact search among so many takes some microseconds, less than the code around it.
SMALL = 2000
# An approximation that isn't faster by so much is not worth its misses.
_WORTH = 1.25
# With 100 user vectors a recall of .99 is known to within .006.
_FEW_QUERIES = 100
# The kinds that can be named, beside `auto`.
KINDS = ("flat", "ivf_pq", "sq8", "ivf", "hnsw", "rabitq")
# Lists are 1.5 times the root of the items: 128 to 400 lists of 41,000 items were alike, and 810 took a
# quarter longer.
_LISTS = 1.5
# One list of codes was faster than several up to 10,000 items on vectors of trained models, and up to 200,000
# on vectors without clusters.
_ONE_LIST, _PERHAPS_ONE_LIST, _MANY = 10_000, 200_000, 100_000
# Lists and graphs of more items take minutes to build, and no measured vectors made them the fastest: `auto`
# tries them last.
_SLOW_FROM = 20_000
_SLOW = ("ivf", "hnsw", "rabitq")
# Graphs of inner products lose whole regions where lengths spread by more (a recall of .57 was seen at
# k = 1,000): `auto` leaves them out.
_GRAPH_SPREAD = 0.25
_UNTUNED = (SearchParams(k=1, candidates=1),)
Report = Callable[[str], None]


class IndexRequest(NamedTuple):
    """The request for an index: a kind or `auto`, and a recall."""

    kind: str = "auto"
    recall: float = 0.99


class Chosen(NamedTuple):
    """An index, its measured recall, and the reasons for it."""

    made: Index
    recall: tuple[MeasuredRecall, ...]
    choice: IndexChoice

    @property
    def settings(self) -> IndexSettings:
        """The manifest's description of it."""
        return self.made.settings


def choose(
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    scoring: ScoringConfig,
    request: IndexRequest,
    report: Report = lambda message: None,
) -> Chosen:
    """Build the index that `request` describes for vectors [N, D], measured on user vectors [Q, D].

    `auto` takes the fastest that reaches the recall at each k and selectivity; small catalogs stay exact.
    Raises BundleError for an unknown kind, a recall that isn't between 0 and 1, and a named kind that misses
    the recall.
    """
    _check(request)
    threads = faiss.omp_get_max_threads()
    # As the service searches: FAISS's own threads take longer to wake than a search takes.
    faiss.omp_set_num_threads(1)
    try:
        vectors = np.ascontiguousarray(np.asarray(vectors), dtype=np.float32)
        measured, learnt = split_queries(np.asarray(queries, dtype=np.float32), len(vectors))
        task = Task(vectors, measured, scoring, request.recall, learnt, request.kind != "auto")
        choice = _Choice(task, request, report)
        made, recall = choice.made()
    finally:
        faiss.omp_set_num_threads(threads)
    described = IndexChoice(
        asked=request.kind,
        recall=request.recall,
        queries=len(measured),
        words=tuple(choice.reasons),
    )
    return Chosen(made, recall, described)


def candidates(vectors: NDArray[np.float32], biased: bool, kind: str) -> list[ApproximateSettings]:
    """The untuned settings to try for vectors [N, D], likely winners first: of one kind, or all for `auto`.

    `biased`: the last column of an item vector is its bias. `auto` leaves out a graph where lengths spread.
    """
    count = len(vectors)
    # A bias makes lengths unequal in a way of its own: lists of directions serve it better.
    unequal = not biased and not are_equal(vectors)
    lists = max(1, min(count // 40, round(_LISTS * sqrt(count))))
    proposals = [
        *_product_codes(vectors, biased, unequal),
        ScalarSettings(efforts=_UNTUNED),
        IvfSettings(efforts=_UNTUNED, biased=biased, augmented=unequal, lists=lists),
        HnswSettings(efforts=_UNTUNED),
        # FAISS computes inner products with these codes, so that lengths may differ.
        RabitqSettings(efforts=_UNTUNED, biased=biased, lists=lists),
    ]
    if kind != "auto":
        return [one for one in proposals if one.kind == kind]
    return [one for one in proposals if one.kind != "hnsw" or spread(vectors) <= _GRAPH_SPREAD]


def _product_codes(vectors: NDArray[np.float32], biased: bool, unequal: bool) -> list[ApproximateSettings]:
    """By the number of lists, each of which costs .3 microseconds; one list also rotated."""
    count, dimension = vectors.shape
    counts = [1] if count <= _ONE_LIST else [round((2 if count >= _MANY else 1) * sqrt(count))]
    if _ONE_LIST < count <= _PERHAPS_ONE_LIST:
        counts.append(1)
    proposals: list[ApproximateSettings] = []
    for lists in counts:
        plain = IvfPqSettings(
            efforts=_UNTUNED, biased=biased, augmented=unequal, lists=lists, parts=dimension + unequal
        )
        proposals += [plain, plain.model_copy(update={"rotated": True})] if plain.reads_all else [plain]
    return proposals


class _Choice:
    """The state of one choice: the reasons so far, and the best of the kinds that were tried."""

    def __init__(self, task: Task, request: IndexRequest, report: Report) -> None:
        self._task, self._request, self._report = task, request, report
        self._spread = spread(task.vectors)
        self.reasons: list[str] = []
        self._best: ApproximateIndex | None = None
        self._milliseconds = inf
        self._recall: tuple[MeasuredRecall, ...] = ()

    def made(self) -> tuple[Index, tuple[MeasuredRecall, ...]]:
        """The index, exact where its speed suffices, and its recall."""
        task, request, is_auto = self._task, self._request, self._request.kind == "auto"
        count, dimension = task.vectors.shape
        self.reasons.append(
            f"{count:,} items of {dimension} numbers, whose lengths spread by {100 * self._spread:.2g} %; "
            f"measured with {len(task.queries):,} user vectors"
        )
        if len(task.queries) < _FEW_QUERIES:
            self.reasons.append(
                f"so few measure a recall only roughly; an export from a run brings {_FEW_QUERIES} and more"
            )
        if request.kind == "flat":
            return self._exact("flat was requested; it misses nothing")
        if is_auto and count <= SMALL:
            return self._exact(f"exact search of at most {SMALL:,} items takes some microseconds: flat")
        exact_milliseconds = 1000 * task.exact_seconds[task.truth.ks[0]]
        self.reasons.append(f"an exact search takes {exact_milliseconds:.3g} ms")
        self._try_all()
        if self._best is None or (is_auto and self._milliseconds * _WORTH > exact_milliseconds):
            return self._exact("no kind is enough faster than the exact search to be worth its misses: flat")
        settings = self._best.settings
        why = "the fastest that reaches it" if is_auto else "requested"
        self.reasons.append(f"{settings.label} was {why}: {settings.kind}")
        return self._best, self._recall

    def _try_all(self) -> None:
        """Build, tune and measure the proposals. Raises BundleError where a named kind misses the recall."""
        task, request = self._task, self._request
        if request.kind == "auto" and self._spread > _GRAPH_SPREAD:
            self.reasons.append("hnsw was not tried: it loses items where lengths differ so much")
        missed: tuple[MeasuredRecall, ...] = ()
        for settings in candidates(task.vectors, task.scoring.item_bias, request.kind):
            if self._best and settings.kind in _SLOW and len(task.vectors) > _SLOW_FROM:
                why = "it takes long to build, and was never faster than such codes"
                self.reasons.append(f"{settings.label} was not tried: {why}")
                continue
            self._report(f"trying {settings.label} ...")
            missed = self._try(settings) or missed
            self._report(self.reasons[-1])
        if request.kind != "auto" and self._best is None:
            check_recall(missed, request.recall, request.kind)

    def _try(self, settings: ApproximateSettings) -> tuple[MeasuredRecall, ...]:
        """Keep a proposal if it is the best; its recall where it misses the requested one."""
        task, wanted = self._task, self._request.recall
        start = time.perf_counter()
        built = ApproximateIndex.build(task.vectors, settings, task.learnt)
        self._report(f"{settings.label} was built in {time.perf_counter() - start:.0f} s; tuning it ...")
        # The seconds that it has to beat.
        rival = self._milliseconds / 1000 if self._best and serves_usual(self._best) else inf
        index = tuned(built, task, rival)
        if index is None:
            name = self._best.settings.label if self._best else "the exact search"
            self.reasons.append(f"{settings.label} reaches {wanted:g} with no search faster than {name}")
            return ()
        planner = Planner(index, task.scoring)
        measured = measure_recall(planner, task.vectors, task.queries, absolute=task.scoring.absolute)
        recall = min(cell.recall for cell in measured)
        milliseconds = 1000 * task.seconds(planner, task.truth.ks[0])
        self.reasons.append(
            f"{settings.label} {'reaches' if recall >= wanted else 'misses'} {wanted:g}: at least "
            f"{recall:.4f} at every k and selectivity, {milliseconds:.3g} ms, "
            f"{built.file_bytes() / 1e6:.1f} MB"
        )
        if recall < wanted:
            return measured
        if self._is_better(index, milliseconds):
            self._best, self._recall, self._milliseconds = index, measured, milliseconds
        return ()

    def _is_better(self, index: ApproximateIndex, milliseconds: float) -> bool:
        if self._best is None or serves_usual(index) != serves_usual(self._best):
            return self._best is None or serves_usual(index)
        return milliseconds < self._milliseconds

    def _exact(self, reason: str) -> tuple[Index, tuple[MeasuredRecall, ...]]:
        task = self._task
        self.reasons.append(reason)
        queries = task.queries[:EXACT_QUERIES]
        measured = measure_recall(task.exact, task.vectors, queries, absolute=task.scoring.absolute)
        return ExactIndex(task.vectors), measured


def _check(request: IndexRequest) -> None:
    if request.kind == "engine":
        raise BundleError("--kind engine: turret publish BUNDLE --engine ADDRESS makes such an index")
    if request.kind not in ("auto", *KINDS):
        raise BundleError(f"--kind {request.kind}: there is no such index; name auto, {', '.join(KINDS)}")
    check_requested(request.recall)
