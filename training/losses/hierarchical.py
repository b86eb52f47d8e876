"""The hierarchical softmax (Morin & Bengio 2005), by clusters or by the Huffman tree of the frequencies."""

import heapq
import math
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, logsigmoid, softplus

from turret.tower.config import ScoringConfig
from turret.tower.towers.model import cross_scores, scored_items
from turret.training.errors import TrainingError
from turret.training.objectives.contract import Examples, LossSettings, Objective, StepLoss, weighted_mean
from turret.training.objectives.sampled import own_scores
from turret.training.randomness import stream
from turret.training.samplers.core.contract import Sampler
from turret.training.samplers.core.settings import BuildContext


def huffman_paths(counts: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """The paths of Huffman's tree: no binary tree has a smaller mean length of path under these counts.

    Between equal counts the older node is merged first, so that items without a count share a balanced part.

    Args:
        counts: int64 [N], how often each item is a positive.

    Returns:
        int64 [N, L], the inner nodes above each item, from the lowest on, -1 beyond the root; and float32 [N,
        L], +1 where the path takes the first branch of the node, -1 for the second, 0 beyond the root.

    Source: Huffman 1952.
    """
    size = len(counts)
    parents = np.full(max(2 * size - 1, 1), -1, dtype=np.int64)
    signs = np.zeros(len(parents), dtype=np.float32)
    waiting = [(count, node) for node, count in enumerate(counts.tolist())]
    heapq.heapify(waiting)
    for node in range(size, 2 * size - 1):
        (first, left), (second, right) = heapq.heappop(waiting), heapq.heappop(waiting)
        parents[left] = parents[right] = node
        signs[left], signs[right] = 1.0, -1.0
        heapq.heappush(waiting, (first + second, node))
    nodes, turns, at = [], [], np.arange(size)
    while (parents[at] >= 0).any():
        nodes.append(np.where(parents[at] >= 0, parents[at] - size, -1))
        turns.append(signs[at])
        # The root has no parent and no sign, so that a path that has reached it stays there.
        at = np.where(parents[at] >= 0, parents[at], at)
    if not nodes:
        return torch.zeros(size, 0, dtype=torch.int64), torch.zeros(size, 0)
    return torch.from_numpy(np.stack(nodes, axis=1)), torch.from_numpy(np.stack(turns, axis=1))


def tree_softmax(scores: Tensor, signs: Tensor) -> Tensor:
    """-log p(item | h) = sum over the path of softplus(-sign s_node): one binary decision a node.

    Args:
        scores: [B, L] tempered scores of the nodes on each positive's path.
        signs: [B, L], +1 or -1 for the branch that the path takes, 0 beyond the root.

    Returns:
        [B], at least zero.

    Source: Morin & Bengio 2005, eq. 2-3; Mikolov et al. 2013, eq. 3, with the tree of Huffman.
    """
    return softplus(-signs * scores).masked_fill(signs == 0.0, 0.0).sum(dim=1)


class HuffmanObjective(Objective):
    """Inner nodes have vectors beside the towers; an example scores the nodes on its positive's path."""

    nodes: Tensor
    signs: Tensor

    def __init__(self, paths: tuple[Tensor, Tensor], dimension: int, random: np.random.Generator) -> None:
        """Take the nodes and signs of `huffman_paths`."""
        super().__init__()
        nodes, signs = paths
        inner = max(len(nodes) - 1, 1)
        first = random.normal(scale=dimension**-0.5, size=(inner, dimension))
        self.node_vectors = nn.Parameter(torch.from_numpy(first.astype(np.float32)))
        # Derived from the data, so checkpoints do not store them.
        self.register_buffer("nodes", nodes, persistent=False)
        self.register_buffer("signs", signs, persistent=False)

    def forward(self, examples: Examples, random: np.random.Generator) -> StepLoss:
        nodes, signs = self.nodes[examples.positives], self.signs[examples.positives]
        vectors = scored_items(self.node_vectors, examples.scoring)[nodes.clamp(min=0)]
        losses = tree_softmax(cross_scores(examples.users, vectors, examples.scoring), signs)
        return StepLoss(weighted_mean(losses, examples.weights), examples.positives.new_zeros(()))

    def scores(self, users: Tensor, items: Tensor, scoring: ScoringConfig) -> Tensor:
        """log p [U, N] of the whole catalog."""
        of_nodes = cross_scores(users, scored_items(self.node_vectors, scoring), scoring)
        log_p = users.new_zeros(len(users), len(self.nodes))
        for nodes, signs in zip(self.nodes.T, self.signs.T, strict=True):
            branch = logsigmoid(signs * of_nodes[:, nodes.clamp(min=0)])
            log_p += branch.masked_fill(signs == 0.0, 0.0)
        return log_p


class HierarchicalSoftmaxConfig(LossSettings):
    """p(cluster) p(item in cluster) (Morin & Bengio 2005), or binary decisions down a Huffman tree.

    0 clusters stand for the square root of N; a tree has none.
    """

    draws: ClassVar[bool] = False
    servable: ClassVar[bool] = False
    masks_seen: ClassVar[bool] = False

    kind: Literal["hierarchical_softmax"] = "hierarchical_softmax"
    tree: Literal["clusters", "huffman"] = "clusters"
    clusters: Annotated[int, Field(strict=True, ge=0, le=10_000_000)] = 0

    def objective(self, context: BuildContext, sampler: Sampler | None) -> Objective:
        """Build the objective. Raises TrainingError for more clusters than items."""
        counts = context.statistics.target_counts()
        random = stream(context.seed, "cluster vectors", 0)
        if self.tree == "huffman":
            return HuffmanObjective(huffman_paths(counts), context.dimension, random)
        return HierarchicalObjective(frequency_clusters(counts, self.clusters), context.dimension, random)


def hierarchical_softmax(
    cluster_scores: Tensor, clusters: Tensor, member_scores: Tensor, positions: Tensor
) -> Tensor:
    """-log p(cluster | h) - log p(item | cluster, h). With one cluster it *is* the full softmax.

    Args:
        cluster_scores: [B, C] tempered scores of all clusters.
        clusters: int64 [B], the cluster of each positive.
        member_scores: [B, S] tempered scores of the items in that cluster, minus infinity beyond its end.
        positions: int64 [B], the positive's index in its cluster.

    Returns:
        [B], at least zero.

    Source: Morin & Bengio 2005, eq. 2, with two levels.
    """
    of_cluster = cross_entropy(cluster_scores, clusters, reduction="none")
    return of_cluster + cross_entropy(member_scores, positions, reduction="none")


class HierarchicalObjective(Objective):
    """Clusters have vectors of their own beside the towers; an example scores C of them and N / C items."""

    members: Tensor
    slots: Tensor

    def __init__(self, members: Tensor, dimension: int, random: np.random.Generator) -> None:
        """`members` is int64 [C, S], the item rows of each cluster, with -1 beyond its end."""
        super().__init__()
        first = random.normal(scale=dimension**-0.5, size=(len(members), dimension))
        self.cluster_vectors = nn.Parameter(torch.from_numpy(first.astype(np.float32)))
        # The buffer has each item's position in the flat table of members: int64 [N].
        positions = (members.flatten() >= 0).nonzero().flatten()
        slots = positions[members.flatten()[positions].argsort()]
        # Derived from the data, so checkpoints do not store them.
        self.register_buffer("members", members, persistent=False)
        self.register_buffer("slots", slots, persistent=False)

    def forward(self, examples: Examples, random: np.random.Generator) -> StepLoss:
        slots, size = self.slots[examples.positives], self.members.shape[1]
        members = self.members[slots // size]
        within = own_scores(examples, members.clamp(min=0)).masked_fill(members < 0, float("-inf"))
        of_clusters = self._cluster_scores(examples.users, examples.scoring)
        losses = hierarchical_softmax(of_clusters, slots // size, within, slots % size)
        return StepLoss(weighted_mean(losses, examples.weights), slots.new_zeros(()))

    def scores(self, users: Tensor, items: Tensor, scoring: ScoringConfig) -> Tensor:
        """log p [U, N] of the whole catalog."""
        within = cross_scores(users, items, scoring)[:, self.members.clamp(min=0)]
        within = within.masked_fill(self.members < 0, float("-inf"))
        of_clusters = self._cluster_scores(users, scoring).log_softmax(dim=1).unsqueeze(2)
        return (of_clusters + within.log_softmax(dim=2)).flatten(1)[:, self.slots]

    def _cluster_scores(self, users: Tensor, scoring: ScoringConfig) -> Tensor:
        return cross_scores(users, scored_items(self.cluster_vectors, scoring), scoring)


def frequency_clusters(counts: NDArray[np.int64], clusters: int) -> Tensor:
    """Clusters of equal size, cut from the order of falling frequency (ties by row; Mikolov et al. 2011).

    The sizes are equal, because the largest cluster decides the cost of a step.

    Args:
        counts: int64 [N], how often each item is a positive.
        clusters: C, or 0 for the square root of N, where C + N / C is smallest.

    Returns:
        int64 [C, S], the rows of each cluster; -1 fills clusters with one item fewer than the largest.

    Raises:
        TrainingError: there are fewer items than clusters.
    """
    clusters = clusters or max(1, round(math.sqrt(len(counts))))
    if clusters > len(counts):
        raise TrainingError(
            f"objective.loss.clusters = {clusters}: the catalog has {len(counts)} items, and none of the "
            "clusters may be empty; set fewer, or 0 for the square root."
        )
    runs = np.array_split(np.argsort(-counts, kind="stable"), clusters)
    members = np.full((clusters, len(runs[0])), -1, dtype=np.int64)
    for cluster, rows in enumerate(runs):
        members[cluster, : len(rows)] = rows
    return torch.from_numpy(members)
