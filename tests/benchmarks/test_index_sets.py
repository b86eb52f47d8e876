from pathlib import Path

import numpy as np

from benchmarks.index_sets import asked, index_set
from benchmarks.index_vectors import Vectors


def some(seed: int = 0) -> Vectors:
    generator = np.random.default_rng(seed)
    items, users = (generator.standard_normal((count, 8)).astype(np.float32) for count in (150, 70))
    return Vectors(items, users)


def test_users_who_ask_are_not_learnt_from_and_the_truth_is_theirs(tmp_path: Path) -> None:
    vectors = some()
    one = asked("some", vectors, biased=False, questions=40)
    assert (len(one.queries), len(one.learnt)) == (40, 30)
    together = np.concatenate([one.queries, one.learnt])
    np.testing.assert_array_equal(np.unique(together, axis=0), np.unique(vectors.users, axis=0))
    true = np.argsort(-(one.queries @ vectors.items.T), axis=1)
    np.testing.assert_array_equal(one.truth[:, :10], true[:, :10])
    written = np.load(one.write(tmp_path / "some.npz"))
    np.testing.assert_array_equal(written["truth"], one.truth)
    np.testing.assert_array_equal(written["queries"], one.queries)


def test_other_items_have_another_key() -> None:
    assert asked("a", some(), False).key == asked("b", some(), False).key
    assert asked("a", some(), False).key != asked("a", some(1), False).key


def test_a_quick_run_needs_no_data_and_no_training(tmp_path: Path) -> None:
    one, again = index_set("invented", tmp_path), index_set("invented", tmp_path)
    assert (one.items.shape, one.queries.shape, one.biased) == ((3000, 64), (500, 64), False)
    np.testing.assert_allclose(np.linalg.norm(one.items, axis=1), 1.0, rtol=1e-6)
    assert one.key == again.key
