"""Index kinds of other packages: their exceptions are named, and their answers held to the contract."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from turret.data.entry_points import failing_line
from turret.data.errors import TurretError
from turret.tower.catalog.masks import RowMask
from turret.tower.errors import BundleError
from turret.tower.format.index_kinds import INDEX_KINDS, OURS
from turret.tower.index.index import Index

_QUERIES, _KS, _FEW_ALLOWED = 4, (10, 1, 100), 5
# Sums of the same float32 products in another order differ by less, relative to the lengths of the vectors;
# float16 rounds by a hundred times as much.
_ROUNDING = 1e-5


def is_foreign(kind: str) -> bool:
    """Whether another package adds the kind."""
    return INDEX_KINDS[kind] not in OURS


def described(kind: str) -> str:
    """The kind with its class, for messages."""
    return f"index kind {kind!r} ({INDEX_KINDS[kind].index})"


@contextmanager
def naming_kind(kind: str, doing: str) -> Iterator[None]:
    """Turn an exception of a foreign kind into a BundleError with the kind, its class and the line.

    `doing` is the failing step, as in "can't be built". Our errors pass, and so do exceptions of our kinds.
    """
    try:
        yield
    except TurretError:
        raise
    except Exception as cause:  # another package may raise anything
        if not is_foreign(kind):
            raise
        reason = " ".join(f"{type(cause).__name__}: {cause}".split())
        line = failing_line(cause, INDEX_KINDS[kind].index.partition(":")[0])
        raise BundleError(
            f"{described(kind)} {doing}: {reason} ({line}); mend, update or uninstall its package"
        ) from cause


def check_answers(index: Index, vectors: NDArray[np.float32], queries: NDArray[np.float32]) -> None:
    """Hold `index` over item vectors [N, D] to `Index.nearest` for some of the user vectors [Q, D].

    A measured recall doesn't tell whether rows are allowed, in order and with true scores. Raises BundleError
    for the first answer that breaks the contract.
    """
    kind, count = index.settings.kind, len(vectors)
    half = np.zeros(count, dtype=np.bool_)
    half[np.random.default_rng(0).permutation(count)[: max(1, count // 2)]] = True
    few = np.zeros(count, dtype=np.bool_)
    few[np.flatnonzero(half)[-_FEW_ALLOWED:]] = True
    for query in np.ascontiguousarray(queries[:_QUERIES]):
        for k in _KS:
            for allowed in (None, RowMask(half), RowMask(few)):
                among = "all rows" if allowed is None else f"{allowed.count:,} allowed rows"
                with naming_kind(kind, f"fails to search {among} for the best {k}"):
                    found = index.nearest(query, k, allowed)
                wrong = _wrong(found, vectors, query, min(k, allowed.count if allowed else count), allowed)
                if wrong:
                    raise BundleError(
                        f"{described(kind)} was asked for the best {k} of {among}, and its nearest returned "
                        f"{wrong}; docs/vector_index.md says what it has to return; nothing was published"
                    )


def _wrong(
    found: object, vectors: NDArray[np.float32], query: NDArray[np.float32], k: int, allowed: RowMask | None
) -> str | None:
    """The fault of an answer that should have `k` rows."""
    if not (
        isinstance(found, tuple) and len(found) == 2 and all(isinstance(one, np.ndarray) for one in found)
    ):
        return "something else than a tuple of two numpy arrays, rows and scores"
    rows, scores = found
    if rows.shape != (k,) or scores.shape != (k,):
        return f"arrays of shapes {rows.shape} and {scores.shape}, not ({k},)"
    if rows.dtype != np.int64 or scores.dtype != np.float32:
        return f"rows of {rows.dtype} and scores of {scores.dtype}, not of int64 and float32"
    if rows.min() < 0 or rows.max() >= len(vectors) or len(np.unique(rows)) < k:
        return f"rows that repeat or aren't between 0 and {len(vectors) - 1:,}"
    if allowed is not None and not allowed.mask[rows].all():
        return "rows that aren't allowed"
    if not np.array_equal(rows, rows[np.lexsort((rows, -scores))]):
        return "rows that aren't in order: higher scores first, then lower rows"
    true = vectors[rows].astype(np.float64) @ query
    slack = _ROUNDING * np.linalg.norm(vectors[rows], axis=1) * np.linalg.norm(query)
    if not (np.abs(scores - true) <= slack).all():
        return "scores that aren't the inner products of the vector and the item vectors (Index.exact.scores)"
    return None
