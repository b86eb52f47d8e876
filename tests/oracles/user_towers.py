"""User towers in loops over examples, steps and heads, with weights given as plain matrices."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def window_mean(vectors: Matrix, start: int, end: int) -> Matrix:
    """The mean of vectors start..end-1, added up one by one."""
    total = np.zeros(vectors.shape[1])
    for place in range(start, end):
        total += vectors[place]
    return total / (end - start)


def network(layers: Sequence[tuple[Matrix, Matrix]], inputs: Matrix) -> Matrix:
    """A ReLU network: layers of (weights [out, in], bias [out]), the last one linear."""
    for place, (weights, bias) in enumerate(layers):
        inputs = weights @ inputs + bias
        if place + 1 < len(layers):
            inputs = np.maximum(inputs, 0.0)
    return inputs


Floats = NDArray[np.float64]
Weights = Mapping[str, Floats]


def normalised(step: Floats, weights: Weights, name: str) -> Floats:
    """Layer normalisation of one step [D]."""
    centred = step - step.mean()
    scaled: Floats = centred / np.sqrt((centred**2).mean() + 1e-5)
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def attended(steps: list[Floats], weights: Weights, name: str, heads: int) -> list[Floats]:
    """What each step reads from those up to itself."""
    width = len(steps[0])
    size = width // heads
    projected = [weights[f"{name}.inputs.weight"] @ step for step in steps]
    outputs = []
    for t in range(len(steps)):
        mixed = np.zeros(width)
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            parts = [[given[part], given[width:][part], given[2 * width :][part]] for given in projected]
            scores = np.array([parts[t][0] @ parts[u][1] / np.sqrt(size) for u in range(t + 1)])
            shares = np.exp(scores - scores.max())
            shares /= shares.sum()
            for u in range(t + 1):
                mixed[part] += shares[u] * parts[u][2]
        outputs.append(weights[f"{name}.output.weight"] @ mixed)
    return outputs


def fed(step: Floats, weights: Weights, name: str) -> Floats:
    """The gated feed-forward of one step."""
    both = weights[f"{name}.inputs.weight"] @ step
    gate, content = both[: len(both) // 2], both[len(both) // 2 :]
    result: Floats = weights[f"{name}.output.weight"] @ (gate / (1.0 + np.exp(-gate)) * content)
    return result


def states(weights: Weights, history: Floats, heads: int) -> Floats:
    """The state after each step of one history [T, D]: [T, D]."""
    steps = [step + weights["positions.weight"][t] for t, step in enumerate(history)]
    block = 0
    while f"blocks.{block}.before_attention.weight" in weights:
        name = f"blocks.{block}"
        read = [normalised(step, weights, f"{name}.before_attention") for step in steps]
        mixed = attended(read, weights, f"{name}.attention", heads)
        steps = [step + more for step, more in zip(steps, mixed, strict=True)]
        read = [normalised(step, weights, f"{name}.before_feed_forward") for step in steps]
        steps = [s + fed(r, weights, f"{name}.feed_forward") for s, r in zip(steps, read, strict=True)]
        block += 1
    return np.array([normalised(step, weights, "last") for step in steps])
