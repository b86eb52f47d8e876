"""The exact step of the spherical softmax in O(D^2) an example, for any size of the catalog."""

import torch
from torch import Tensor

from turret.training.errors import TrainingError

# From this product of the norms of U and of its inverse on, rounding would show, and W is multiplied out.
_MOST_CONDITION = 1e4


class FactoredItems:
    """Item vectors W = V U that descend the spherical softmax exactly, without their N scores.

    The loss of an example with user vector h and positive y is log Z - log(s_y^2 + epsilon), where
    Z = |W h|^2 + N epsilon and |W h|^2 = h' Q h with Q = W' W, D x D. Its gradient by W is (2 / Z) W h h',
    less a multiple of h' in the row of y. So a step multiplies W by a D x D matrix, which U takes, and
    changes one row, which V takes:

        W <- W M + E,   M = I - rate sum_b (2 / Z_b) h_b h_b',   U <- U M,   V <- V + E U^-1

    Q and the inverse of U follow by products with as few rows as the batch has. A step of B examples costs
    O(B D^2), and the scores of all N items are never computed. Plain gradient descent: an optimiser with
    a state for each weight would need the dense gradient.

    Source: Vincent, de Brebisson & Bouthillier 2015: the algorithm of squared error in its form for the
    spherical family, for batches.
    """

    def __init__(self, vectors: Tensor, epsilon: float = 1.0) -> None:
        """Begin with a copy of `vectors` [N, D]; `epsilon` is the weight of an item of score zero."""
        if vectors.dim() != 2 or epsilon <= 0.0:
            raise TrainingError(
                f"vectors of shape {tuple(vectors.shape)} with epsilon = {epsilon}: give [N, D] and an "
                "epsilon above zero."
            )
        self.epsilon = epsilon
        self._v = vectors.detach().clone()
        self._u = torch.eye(vectors.shape[1], dtype=vectors.dtype, device=vectors.device)
        self._inverse = self._u.clone()
        self._gram = self._v.T @ self._v

    def vectors(self, rows: Tensor) -> Tensor:
        """The rows of W: [..., D]."""
        return self._v[rows] @ self._u

    def multiply_out(self) -> Tensor:
        """W [N, D], in O(N D^2); V becomes W, and U the identity."""
        self._v = self._v @ self._u
        self._u = torch.eye(len(self._u), dtype=self._u.dtype, device=self._u.device)
        self._inverse = self._u.clone()
        self._gram = self._v.T @ self._v
        return self._v

    @torch.no_grad()
    def step(self, users: Tensor, positives: Tensor, rate: float) -> tuple[Tensor, Tensor]:
        """Descend the mean loss of a batch by `rate` times its gradient.

        Args:
            users: [B, D] user vectors.
            positives: int64 [B], the item row of each.
            rate: the learning rate, small enough that M has an inverse.

        Returns:
            The losses [B] before the step, and the gradient [B, D] of their mean by the users.
        """
        size, own = len(users), self.vectors(positives)
        scores = (users * own).sum(dim=1)
        pulled = users @ self._gram
        total = (users * pulled).sum(dim=1) + len(self._v) * self.epsilon
        mass = scores.square() + self.epsilon
        push, pull = 2.0 / (size * total), 2.0 * scores / (size * mass)
        gradient = push.unsqueeze(1) * pulled - pull.unsqueeze(1) * own
        rows, places = torch.unique(positives, return_inverse=True)
        added = users.new_zeros(len(rows), users.shape[1])
        added.index_add_(0, places, rate * pull.unsqueeze(1) * users)
        self._move(users, rate * push, rows, added)
        return total.log() - mass.log(), gradient

    def _move(self, users: Tensor, push: Tensor, rows: Tensor, added: Tensor) -> None:
        """W <- W M + E, with M = I - H' diag(push) H and the rows `added` [R, D] of E."""
        before = self.vectors(rows)
        shrink = torch.eye(users.shape[1], dtype=users.dtype, device=users.device)
        shrink -= users.T @ (push.unsqueeze(1) * users)
        self._u = self._u @ shrink
        self._inverse = _inverse_times(users, push, shrink, self._inverse)
        self._v.index_add_(0, rows, added @ self._inverse)
        crossed = shrink @ (before.T @ added)
        self._gram = shrink @ self._gram @ shrink + crossed + crossed.T + added.T @ added
        if float(self._u.norm() * self._inverse.norm()) > _MOST_CONDITION * len(self._u):
            self.multiply_out()


def _inverse_times(users: Tensor, push: Tensor, shrink: Tensor, other: Tensor) -> Tensor:
    """M^-1 `other`: by the Woodbury identity with a system of B equations, or of D where that is fewer."""
    if len(users) >= users.shape[1]:
        direct: Tensor = torch.linalg.solve(shrink, other)
        return direct
    inner = torch.diag(1.0 / push) - users @ users.T
    correction: Tensor = users.T @ torch.linalg.solve(inner, users @ other)
    return other + correction
