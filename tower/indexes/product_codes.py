"""Inverted lists of four-bit product codes, that are read many at a time and compared by inner products.

What makes few candidates enough, measured on the item vectors of trained towers: a random rotation, as four
bits say little of a coordinate that stands out; one code a coordinate; lists by direction, finer where users
ask for more.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tower.indexes.augmentation import augmented
from tower.indexes.settings import IvfPqSettings
from tower.indexes.untyped import faiss

_SEED = 1234
# Codes learn from so many vectors, and k-means from so many a centre; more moved neither.
_LEARNT_FROM, _VECTORS_A_CENTRE, _ROUNDS = 65536, 256, 10
_BLOCK = 65536
# How many of the best items of a learning user count.
_WANTED = 10


def product_codes(
    settings: IvfPqSettings, vectors: NDArray[np.float32], users: NDArray[np.float32] | None
) -> Any:
    """The codes of `vectors` [N, D]; `users` [U, D] are real user vectors to learn from, if any."""
    stored = stored_vectors(settings, vectors)
    rotation = faiss.RandomRotationMatrix(stored.shape[1], stored.shape[1])
    rotation.init(_SEED)
    coarse = faiss.IndexFlatIP(stored.shape[1])
    coarse.add(rotation.apply(_centres(settings, stored, vectors, users)))
    index = faiss.IndexIVFPQFastScan(
        coarse, stored.shape[1], settings.lists, settings.parts, 4, faiss.METRIC_INNER_PRODUCT
    )
    index.by_residual = True
    learnt = np.random.default_rng(_SEED).permutation(len(stored))[:_LEARNT_FROM]
    index.train(rotation.apply(stored[np.sort(learnt)]))
    whole = faiss.IndexPreTransform(rotation, index)
    for start in range(0, len(stored), _BLOCK):
        whole.add(stored[start : start + _BLOCK])
    whole.own_fields = index.own_fields = True
    for part in (rotation, index, coarse):
        part.this.disown()
    return whole


def stored_vectors(settings: IvfPqSettings, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """`vectors` [N, D] as they are coded: made equally long if the settings say so, and in whole parts."""
    stored = augmented(vectors) if settings.augmented else vectors
    missing = -stored.shape[1] % settings.parts
    return np.ascontiguousarray(np.pad(stored, ((0, 0), (0, missing))) if missing else stored)


def _centres(
    settings: IvfPqSettings,
    stored: NDArray[np.float32],
    vectors: NDArray[np.float32],
    users: NDArray[np.float32] | None,
) -> NDArray[np.float32]:
    """What a list is found by: the mean direction of its members, beside the largest of their biases."""
    biases = stored[:, vectors.shape[1] - 1].copy()
    directions = stored.copy()
    if settings.biased:
        directions[:, vectors.shape[1] - 1] = 0.0
    directions /= np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), np.float32(1e-30))
    means = faiss.Kmeans(
        stored.shape[1],
        settings.lists,
        niter=_ROUNDS,
        spherical=True,
        seed=_SEED,
        max_points_per_centroid=_VECTORS_A_CENTRE,
        min_points_per_centroid=1,
    )
    means.train(directions, weights=_wanted(vectors, users))
    centres: NDArray[np.float32] = means.centroids.copy()
    if settings.biased:
        lists = means.index.search(directions, 1)[1][:, 0]
        largest = np.full(settings.lists, biases.min(), dtype=np.float32)
        np.maximum.at(largest, lists, biases)
        centres[:, vectors.shape[1] - 1] = largest
    return centres


def _wanted(vectors: NDArray[np.float32], users: NDArray[np.float32] | None) -> NDArray[np.float32] | None:
    """One and how often each item is among the best of the users, as what it weighs: [N]."""
    if users is None or not len(users):
        return None
    best = faiss.knn(users, vectors, min(_WANTED, len(vectors)), metric=faiss.METRIC_INNER_PRODUCT)[1]
    return 1.0 + np.bincount(best.ravel(), minlength=len(vectors)).astype(np.float32)
