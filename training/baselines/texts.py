"""BM25 over the texts of items: the baseline of queries."""

import re

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.data.prepared import HistoryEnd, PreparedData
from turret.training.baselines.interactions import Baseline
from turret.training.evaluation.ranking import ScoresOf

K1, B = 1.2, 0.75
# Scripts without blanks between words: Chinese and Japanese characters, and Thai.
_UNSPACED = r"\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_TERMS = re.compile(rf"[{_UNSPACED}]+|[^\W{_UNSPACED}]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")


def terms(text: str) -> list[str]:
    """The words of a text in lower case; pairs of characters where a script has no blanks between words."""
    found: list[str] = []
    for run in _TERMS.findall(text.casefold()):
        if _IS_UNSPACED.match(run) and len(run) > 1:
            found += [run[start : start + 2] for start in range(len(run) - 1)]
        else:
            found.append(run)
    return found


def _item_texts(data: PreparedData) -> list[str]:
    """The texts of each item, joined."""
    names = [
        one.name for one in data.item_features.features if one.kind == "text" and one.name in data.fields
    ]
    rows = zip(*(data.fields[name] for name in names), strict=True)
    return [" ".join(str(value) for value in row if value is not None) for row in rows]


def fit_bm25(data: PreparedData, until: HistoryEnd) -> ScoresOf:
    """Items by BM25 with k1 = 1.2 and b = .75, by the library bm25s.

    Source: Robertson & Zaragoza 2009; Lu 2024, "BM25S".
    """
    import bm25s

    index = bm25s.BM25(k1=K1, b=B)
    # A text of no term is one of a term that no query has.
    index.index([terms(text) or ["\0"] for text in _item_texts(data)], show_progress=False)

    def scores_of(users: NDArray[np.int64]) -> Tensor:
        queries = [terms(data.query_text(user)) for user in users.tolist()]
        scores = [index.get_scores(query) if query else np.zeros(len(data.item_ids)) for query in queries]
        return torch.from_numpy(np.array(scores, dtype=np.float32))

    return scores_of


def _obstacle(data: PreparedData) -> str | None:
    if not any(one.kind == "text" and one.name in data.fields for one in data.item_features.features):
        return "its items have no text among the fields of answers"
    return None


BM25 = Baseline("bm25", "BM25", fit_bm25, _obstacle, of_queries=True)
