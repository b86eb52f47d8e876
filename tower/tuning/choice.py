"""The choice of an index for a catalog, by its size, the lengths of its vectors and measurements on them."""

import time
from collections.abc import Callable
from dataclasses import replace
from math import inf, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turret.tower.config import ScoringConfig
from turret.tower.errors import BundleError
from turret.tower.format.checksums import lengths_of
from turret.tower.format.index_settings import (
    ApproximateSettings,
    HnswSettings,
    IvfPqSettings,
    IvfSettings,
    SearchParams,
)
from turret.tower.format.manifest import IndexChoice, MeasuredRecall
from turret.tower.index.approximate import ApproximateIndex
from turret.tower.index.faiss_calls import one_thread
from turret.tower.index.index import ExactIndex, Index
from turret.tower.index.planner import Planner
from turret.tower.tuning.recall import (
    EXACT_QUERIES,
    MARGINS,
    check_recall,
    check_requested,
    measure_recall,
    split_queries,
)
from turret.tower.tuning.search_params import Task, serves_usual, tuned

# An exact search among this many items takes some microseconds, less than the code around it.
SMALL = 2000
# An approximation that isn't faster by this factor is not worth its misses.
_WORTH = 1.25
# With 100 user vectors a recall of .99 is known to within .006.
_FEW_QUERIES = 100
# The kinds that can be named, beside `auto`.
KINDS = ("flat", "ivf_pq", "ivf", "hnsw")
# Product codes have this many centres, and at least as many items to learn from; recall is of ten and more.
_FEWEST = 16
# The number of lists is 1.5 times the root of the items: of 41,000 items, 128 to 400 lists were alike, and
# 810 took a quarter longer.
_LISTS = 1.5
# One list of codes was faster than several up to 10,000 items on vectors of trained models, and up to 200,000
# on vectors without clusters.
_ONE_LIST, _PERHAPS_ONE_LIST, _MANY = 10_000, 200_000, 100_000
# Lengths count as equal where their deviation over their mean is below this. Unit vectors in float32 spread
# by 1e-7, biases and dot products by more.
_EQUAL = 1e-3
_UNTUNED = (SearchParams(k=1, candidates=1),)
Report = Callable[[str], None]


class IndexRequest(NamedTuple):
    """The request for an index: a kind or `auto`, and a recall."""

    kind: str = "auto"
    recall: float = 0.99


class Chosen(NamedTuple):
    """An index, its measured recall, and the reasons for it."""

    built_index: Index
    recall: tuple[MeasuredRecall, ...]
    choice: IndexChoice


def choose(
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    scoring: ScoringConfig,
    request: IndexRequest,
    report: Report = lambda message: None,
) -> Chosen:
    """Build the index that `request` describes for vectors [N, D], measured on user vectors [Q, D].

    `auto` takes the fastest product codes that reach the recall at each k and selectivity, and the lists of
    eight bits, which were never faster, where no codes do; small catalogs stay exact. A graph is made by
    name only. Raises BundleError for an unknown kind, a recall that isn't between 0 and 1, and a named kind
    that misses the recall or has too few items.
    """
    if request.kind == "engine":
        raise BundleError("--kind engine: turret publish BUNDLE --engine ADDRESS makes such an index")
    if request.kind not in ("auto", *KINDS):
        raise BundleError(f"--kind {request.kind}: there is no such index; name auto, {', '.join(KINDS)}")
    check_requested(request.recall)
    if request.kind not in ("auto", "flat") and len(vectors) < _FEWEST:
        raise BundleError(
            f"--kind {request.kind} needs at least {_FEWEST} items, and has {len(vectors)}; use --kind auto "
            "or flat, which are exact for so few"
        )
    vectors = np.ascontiguousarray(np.asarray(vectors), dtype=np.float32)
    measured, learnt = split_queries(np.asarray(queries, dtype=np.float32), len(vectors))
    task = Task(vectors, measured, scoring, request.recall, learnt, request.kind != "auto")
    reasons: list[str] = []
    with one_thread():  # as the service searches
        index, recall = _made(task, request, reasons, report)
    choice = IndexChoice(
        asked=request.kind, recall=request.recall, queries=len(measured), words=tuple(reasons)
    )
    return Chosen(index, recall, choice)


def spread(vectors: NDArray[np.float32]) -> float:
    """The deviation of the lengths of `vectors` [N, D] over their mean: 0 where all lengths are equal."""
    lengths = lengths_of(vectors).astype(np.float64)
    return float(lengths.std() / lengths.mean()) if lengths.any() else 0.0


def are_equal(vectors: NDArray[np.float32]) -> bool:
    """Whether all lengths count as equal, so that distances rank as inner products do."""
    return spread(vectors) < _EQUAL


def candidates(vectors: NDArray[np.float32], biased: bool) -> list[ApproximateSettings]:
    """The untuned settings to try for vectors [N, D], likely winners first.

    `biased`: the last column of an item vector is its bias. A single list of product codes is also tried
    rotated; each further list costs .3 microseconds.
    """
    count, dimension = vectors.shape
    # A bias makes lengths unequal in a way of its own: lists of directions serve it better.
    unequal = not biased and not are_equal(vectors)
    counts = [1] if count <= _ONE_LIST else [round((2 if count >= _MANY else 1) * sqrt(count))]
    if _ONE_LIST < count <= _PERHAPS_ONE_LIST:
        counts.append(1)
    proposals: list[ApproximateSettings] = []
    for lists in counts:
        plain = IvfPqSettings(
            efforts=_UNTUNED, biased=biased, augmented=unequal, lists=lists, parts=dimension + unequal
        )
        proposals += [plain, plain.model_copy(update={"rotated": True})] if plain.reads_all else [plain]
    lists = max(1, min(count // 40, round(_LISTS * sqrt(count))))
    eight_bits = IvfSettings(efforts=_UNTUNED, biased=biased, augmented=unequal, lists=lists)
    return [*proposals, eight_bits, HnswSettings(efforts=_UNTUNED)]


class _Tried(NamedTuple):
    """An index that reaches the recall, and the seconds of its search for the smallest k."""

    built_index: ApproximateIndex
    recall: tuple[MeasuredRecall, ...]
    seconds: float

    @property
    def rank(self) -> tuple[bool, float]:
        """The sort key of an index: the lowest is the best."""
        return not serves_usual(self.built_index), self.seconds


def _made(
    task: Task, request: IndexRequest, reasons: list[str], report: Report
) -> tuple[Index, tuple[MeasuredRecall, ...]]:
    """The index, exact where exact search is fast enough, and its recall; adds to `reasons`."""
    is_auto, (count, dimension) = request.kind == "auto", task.vectors.shape
    reasons.append(
        f"{count:,} items of {dimension} numbers, whose lengths spread by "
        f"{100 * spread(task.vectors):.2g} %; measured with {len(task.queries):,} user vectors"
    )
    if len(task.queries) < _FEW_QUERIES:
        reasons.append(
            f"so few measure a recall only roughly; an export from a run brings {_FEW_QUERIES} and more"
        )
    if request.kind == "flat":
        reasons.append("flat was requested; it misses nothing")
    elif is_auto and count <= SMALL:
        reasons.append(f"exact search of at most {SMALL:,} items takes some microseconds: flat")
    else:
        exact = task.exact_seconds[task.truth.ks[0]]
        reasons.append(f"an exact search takes {1000 * exact:.3g} ms")
        best = _best(task, request, reasons, report)
        if best is not None and not (is_auto and best.seconds * _WORTH > exact):
            settings = best.built_index.settings
            why = "the fastest that reaches it" if is_auto else "requested"
            reasons.append(f"{settings.label} was {why}: {settings.kind}")
            return best.built_index, best.recall
        reasons.append("no kind is enough faster than the exact search to be worth its misses: flat")
    return ExactIndex(task.vectors), measure_recall(task.exact, task.queries[:EXACT_QUERIES])


def _best(task: Task, request: IndexRequest, reasons: list[str], report: Report) -> _Tried | None:
    """Build, tune and measure the proposals. Raises BundleError where a named kind misses the recall."""
    best: _Tried | None = None
    missed: tuple[MeasuredRecall, ...] = ()
    for settings in candidates(task.vectors, task.scoring.item_bias):
        is_asked = settings.kind == request.kind or (request.kind == "auto" and settings.kind != "hnsw")
        if not is_asked or (best and settings.kind != best.built_index.settings.kind):
            continue
        report(f"trying {settings.label} ...")
        start = time.perf_counter()
        built = ApproximateIndex.build(task.vectors, settings, task.learnt)
        report(f"{settings.label} was built in {time.perf_counter() - start:.0f} s; tuning it ...")
        rival = best.seconds if best and serves_usual(best.built_index) else inf
        for attempt in (task, *(replace(task, margin=margin) for margin in MARGINS[1:])):
            index = tuned(built, attempt, rival)
            measured = () if index is None else measure_recall(Planner(index, task.scoring), task.queries)
            recall = min((cell.recall for cell in measured), default=0.0)
            if index is None or recall >= request.recall:
                break
        if index is None:
            name = best.built_index.settings.label if best else "the exact search"
            reasons.append(f"{settings.label} reaches {request.recall:g} with no search faster than {name}")
        else:
            tried = _Tried(index, measured, task.seconds(Planner(index, task.scoring), task.truth.ks[0]))
            reasons.append(
                f"{settings.label} {'reaches' if recall >= request.recall else 'misses'} "
                f"{request.recall:g}: at least {recall:.4f} at every k and selectivity, "
                f"{1000 * tried.seconds:.3g} ms"
            )
            if recall < request.recall:
                missed = measured
            elif best is None or tried.rank < best.rank:
                best = tried
        report(reasons[-1])
    if request.kind != "auto" and best is None:
        check_recall(missed, request.recall, request.kind)
    return best
