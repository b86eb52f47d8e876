"""A check, before the first step, that the user tower of an installed package can be trained and served."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import get_args

import torch
from torch import Tensor

from turret.data.entry_points import failing_line
from turret.tower.errors import BundleError
from turret.tower.hostile import OPERATORS
from turret.tower.inference.session import Session
from turret.tower.layers.packed import PackedHistories
from turret.tower.times import TIME_INPUTS
from turret.tower.towers.model import TwoTowers
from turret.tower.towers.scoring import scored_users
from turret.tower.towers.user import Context
from turret.training.errors import TrainingError
from turret.training.export.onnx_form import user_tower_onnx

# The windows of two histories of five and two events; the last is alone in its history.
STARTS, ENDS, EVENTS = (0, 2, 5), (3, 5, 7), 7
# Sums in another order, of a few float32 numbers.
TOLERANCE = 1e-3


def check_packaged_tower(model: TwoTowers) -> None:
    """Raise TrainingError, naming the kind and the method, unless the user tower keeps its contract.

    It is run on three short histories: `forward` and `served` have to give finite float32 vectors, the same
    ones, and the exported form too. The tower is left in evaluation mode, on the CPU. A tower that reads
    features is exported, but its served vectors are compared only by `turret.training.export`.
    """
    settings = model.config.user
    if settings.context not in get_args(Context):
        raise _error(model, f"has the context {settings.context!r}; use one of {get_args(Context)}")
    model.eval()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        histories, vectors = _histories(settings.reads_times), _vectors(model.config.dimension)
        trained = _called(model, "forward", lambda: model.user(histories, vectors))
        columns = (vectors, histories.gaps, histories.clocks)
        padded = [_padded(column, histories) for column in columns if column is not None]
        lengths = histories.ends - histories.starts
        if model.user.rows is None:
            served = _called(
                model, "served", lambda: model.user.served(padded[0], lengths, {}, tuple(padded[1:]))
            )
            _compare(model, served, trained, "`served`")
        with _naming(model, "the export of `served` as ONNX"):
            exported = user_tower_onnx(model)
        _check_operators(model, exported)
        if model.user.rows is not None:
            return
        inputs = {"history": padded[0], "length": lengths, **dict(zip(TIME_INPUTS, padded[1:], strict=False))}
        given = {name: column.numpy() for name, column in inputs.items()}
        try:
            ours = Session(exported, "user_tower.onnx", "user_vector").run(
                given, (len(STARTS), model.config.dimension)
            )
        except BundleError as error:
            raise _error(model, f"is exported to a form that can't be run: {error}") from None
        _compare(model, torch.tensor(ours), scored_users(trained, model.config.scoring), "the exported form")


def _histories(reads_times: bool) -> PackedHistories:
    count = len(STARTS)
    gaps, clocks = torch.linspace(1.0, 9e4, EVENTS), torch.linspace(0.0, 6e5, EVENTS)
    return PackedHistories(
        rows=torch.zeros(EVENTS, dtype=torch.int64),
        starts=torch.tensor(STARTS),
        ends=torch.tensor(ENDS),
        users=torch.zeros(count, dtype=torch.int64),
        ages=torch.zeros(count),
        gaps=gaps if reads_times else None,
        clocks=clocks if reads_times else None,
    )


def _vectors(dimension: int) -> Tensor:
    drawn = torch.randn(EVENTS, dimension, generator=torch.Generator().manual_seed(0))
    return torch.nn.functional.normalize(drawn, dim=1)


def _padded(column: Tensor, histories: PackedHistories) -> Tensor:
    """The windows of a column [P, ...] as [B, T, ...], with zeros behind and room to spare."""
    lengths = histories.ends - histories.starts
    padded = column.new_zeros(len(lengths), int(lengths.max()) + 2, *column.shape[1:])
    for b, (start, end) in enumerate(zip(histories.starts, histories.ends, strict=True)):
        padded[b, : end - start] = column[start:end]
    return padded


def _called(model: TwoTowers, method: str, call: Callable[[], object]) -> Tensor:
    """Return the vectors of `call`, if they are vectors."""
    with _naming(model, f"`{method}`"):
        vectors = call()
    if not isinstance(vectors, Tensor):
        raise _error(model, f"gives {type(vectors).__name__!r} from `{method}`; return a tensor [B, D]")
    shape = len(STARTS), model.config.dimension
    if tuple(vectors.shape) != shape or vectors.dtype != torch.float32:
        raise _error(
            model,
            f"gives {vectors.dtype} of shape {tuple(vectors.shape)} from `{method}`; return torch.float32 of "
            f"shape {shape}, a vector of tower.dimension for each example",
        )
    if not vectors.isfinite().all():
        raise _error(model, f"gives NaN or infinity from `{method}` for short histories of unit vectors")
    return vectors


def _check_operators(model: TwoTowers, exported: bytes) -> None:
    try:
        Session(exported, "user_tower.onnx", "user_vector")
    except BundleError as error:
        raise _error(
            model,
            f"is exported to a form that no service runs: {error}. Write `served` with other functions of "
            f"torch, so that it needs these operators alone: {', '.join(sorted(OPERATORS))}",
        ) from None


def _compare(model: TwoTowers, one: Tensor, trained: Tensor, name: str) -> None:
    if not torch.allclose(one, trained, rtol=TOLERANCE, atol=TOLERANCE):
        largest = float((one - trained).abs().max())
        raise _error(
            model,
            f"gives other vectors from {name} than from `forward` (by up to {largest:.2g}); make it compute "
            "the same of a padded history",
        )


@contextmanager
def _naming(model: TwoTowers, what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # a package's tower may raise anything
        # The exporter wraps the error that stopped it.
        cause = error.__cause__ or error
        line = failing_line(cause, type(model.user).__module__)
        first, *_ = str(cause).strip().splitlines() or [""]
        raise _error(model, f"fails in {what} ({line}): {type(cause).__name__}: {first[:300]}") from error


def _error(model: TwoTowers, reason: str) -> TrainingError:
    return TrainingError(
        f"tower.user.kind = {model.config.user.kind!r} {reason}. Mend or update its package; "
        "docs/training.md has the contract of user towers."
    )
