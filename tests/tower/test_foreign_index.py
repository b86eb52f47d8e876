"""An index kind of another package is proposed, measured and opened; its faults end in one sentence."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.places import FIXTURES
from tests.support.plugin import run_with
from turret.tower.catalog.masks import RowMask
from turret.tower.errors import BundleError
from turret.tower.format.index_kinds import INDEX_KINDS, IndexKind
from turret.tower.format.index_settings import IndexSettings
from turret.tower.format.manifest import Scoring
from turret.tower.index.index import ExactIndex, Index
from turret.tower.index.opening import open_index
from turret.tower.tuning.choice import IndexRequest, choose


@pytest.mark.nightly
def test_a_package_adds_an_index_by_an_entry_point() -> None:
    """The contract holds it to what it promises."""
    code = "from turret.tower.format.index_kinds import INDEX_KINDS; print(*INDEX_KINDS)"
    assert "sorted" in run_with(FIXTURES / "sorted_index", code).stdout.split()


VECTORS = np.random.default_rng(0).standard_normal((600, 8)).astype(np.float32)

QUERIES = np.random.default_rng(1).standard_normal((40, 8)).astype(np.float32)

DOT = Scoring(kind="dot", temperature=1.0)


class ForeignSettings(IndexSettings):
    kind: Literal["foreign"] = "foreign"
    is_exact: Literal[False] = False

    @classmethod
    def proposals(cls, facts: Any) -> Any:
        return [cls()]


class ForeignIndex(Index):
    def __init__(self, vectors: NDArray[np.float32], settings: ForeignSettings) -> None:
        self.settings, self._exact = settings, ExactIndex(vectors)

    @classmethod
    def build(cls, vectors: Any, settings: Any, users: Any = None) -> "ForeignIndex":
        return cls(vectors, settings)

    @classmethod
    def load(cls, path: Path, vectors: Any, settings: Any) -> "ForeignIndex":
        raise OSError("the socket is closed")

    @property
    def exact(self) -> Index:
        return self._exact

    def vectors(self) -> NDArray[np.float32]:
        return self._exact.vectors()

    def save(self, path: Path) -> None:
        path.touch()

    def nearest(self, vector: Any, k: int, allowed: RowMask | None = None) -> Any:
        return self._exact.nearest(vector, k, allowed)


class Half:
    """No subclass of Index."""


class WithoutSave(ForeignIndex):
    save = Index.save  # abstract


WithoutSave.__abstractmethods__ = frozenset({"save"})


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, "ForeignIndex")


def register(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(INDEX_KINDS, "foreign", IndexKind(ForeignSettings, f"{__name__}:{name}"))


def made() -> str:
    return choose(VECTORS, QUERIES, DOT, IndexRequest("foreign")).settings.kind


def refusal() -> str:
    with pytest.raises(BundleError) as refused:
        made()
    return str(refused.value)


def test_a_kind_that_keeps_the_contract_is_made() -> None:
    assert made() == "foreign"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("Missing", "can't be imported: AttributeError"),
        ("Half", "is .*Half.*, not a subclass of .*Index"),
        ("WithoutSave", "lacks save"),
    ],
)
def test_a_class_that_is_no_index_is_named(monkeypatch: pytest.MonkeyPatch, name: str, problem: str) -> None:
    register(monkeypatch, name)
    with pytest.raises(BundleError, match=rf"index kind 'foreign' \({__name__}:{name}\) {problem}"):
        made()


@pytest.mark.parametrize(
    ("method", "problem"),
    [("build", "can't be built"), ("nearest", "fails to search all rows for the best 10")],
)
def test_what_its_code_raises_is_named_with_the_line(
    monkeypatch: pytest.MonkeyPatch, method: str, problem: str
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("the engine is down")

    monkeypatch.setattr(ForeignIndex, method, fail)
    line = fail.__code__.co_firstlineno + 1
    assert f"{problem}: RuntimeError: the engine is down (test_foreign_index.py, line {line})" in refusal()


def test_a_file_that_it_fails_to_open_is_named(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"can't open .*index\.faiss: OSError: the socket is closed"):
        open_index(tmp_path / "index.faiss", VECTORS, ForeignSettings())


def test_one_that_proposes_nothing_is_not_replaced_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ForeignSettings, "proposals", IndexSettings.proposals)
    assert "--kind foreign: ForeignSettings.proposals gives no settings" in refusal()


WRONG: dict[str, tuple[Any, str]] = {
    "nothing": (lambda rows, scores: None, "than a tuple of two numpy arrays"),
    "lists": (lambda rows, scores: (rows.tolist(), scores.tolist()), "than a tuple of two numpy arrays"),
    "fewer": (
        lambda rows, scores: (rows[:3], scores[:3]),
        r"arrays of shapes \(3,\) and \(3,\), not \(10,\)",
    ),
    "float64": (lambda rows, scores: (rows, scores.astype(np.float64)), "scores of float64"),
    "float16": (
        lambda rows, scores: (rows, scores.astype(np.float16).astype(np.float32)),
        "scores that aren't the inner products",
    ),
    "worst first": (lambda rows, scores: (rows[::-1], scores[::-1]), "aren't in order"),
    "the same row": (lambda rows, scores: (rows * 0 + 1, scores), "rows that repeat"),
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_an_answer_that_breaks_the_contract_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    spoil, problem = WRONG[name]
    monkeypatch.setattr(
        ForeignIndex, "nearest", lambda self, *asked: spoil(*self.exact.nearest(*asked)), raising=True
    )
    with pytest.raises(BundleError, match=f"its nearest returned .*{problem}"):
        made()


def test_rows_that_a_filter_leaves_out_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its measured recall is 1: what it finds is better than the best allowed."""

    def among_all(self: ForeignIndex, vector: Any, k: int, allowed: RowMask | None = None) -> Any:
        return self.exact.nearest(vector, min(k, len(self) if allowed is None else allowed.count))

    monkeypatch.setattr(ForeignIndex, "nearest", among_all)
    assert "rows that aren't allowed" in refusal()
