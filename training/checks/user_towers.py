"""The contract of a user tower: what its vectors depend on, padded as packed, exported as trained."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turret.data.features import Bag, Column, Feature, Features
from turret.tower.config import ScoringConfig
from turret.tower.inference.session import Session
from turret.tower.layers.packed import PackedHistories
from turret.tower.times import TIME_INPUTS
from turret.tower.towers.config import TowerConfig
from turret.tower.towers.model import TwoTowers
from turret.tower.towers.user import UserTower, UserTowerSettings
from turret.training.checks.holds import about, close, holds
from turret.training.export.onnx_form import user_tower_onnx

# Two histories of five and three events, end to end.
_ROWS, _FIRSTS, _USERS = (3, 1, 4, 1, 5, 2, 6, 0), (0, 0, 0, 0, 0, 5, 5, 5), (0, 0, 0, 0, 0, 2, 2, 2)
_EVENTS = len(_ROWS)
# From nothing to decades, all through the week, and one unknown.
_GAPS = (0.0, 0.7, 59.0, 3600.0, 90_000.0, 2e6, -1.0, 3e9)
_CLOCKS = (0.0, 1234.5, 86_399.0, 200_000.0, 432_100.0, 604_799.0, -1.0, 500_000.0)
_FEATURES = Features(
    3,
    (
        Feature(name="country", kind="category", values=("fr", "is")),
        Feature(name="age", kind="number", mean=30.0, deviation=10.0),
        Feature(name="likes", kind="multi", values=("tea", "salt")),
    ),
    {
        "country": np.array([1, 0, 2], dtype=np.int32),
        "age": np.array([0.5, -1.0, 0.0], dtype=np.float32),
        "likes": Bag(np.array([1, 2, 2], dtype=np.int32), np.array([0, 2, 2, 3])),
    },
)
# The same as a request gives them, by user.
_REQUESTED: dict[str, Column] = {
    "country": np.array([1, 0, 2]),
    "age": np.array([0.5, -1.0, 0.0], dtype=np.float32),
    "likes": np.array([[1, 2], [0, 0], [2, 0]]),
}


def check_user_tower(
    tower: str | UserTowerSettings,
    *,
    dimension: int = 8,
    scoring: ScoringConfig | None = None,
    reads_all: bool = True,
    export: bool = True,
) -> None:
    """Check a kind of user tower against the contract of all of them.

    Args:
        tower: settings; or a kind, which stands for its defaults.
        dimension: the width of its vectors.
        scoring: of the vectors that are exported; by default the cosine.
        reads_all: whether every event of a history moves its vector; not so in a tower that reads the newest
            alone.
        export: whether to check the exported form, which takes seconds.

    Raises:
        AssertionError: it breaks the contract; the sentence says in what.
    """
    settings = {"kind": tower} if isinstance(tower, str) else tower
    config = TowerConfig.model_validate(
        {"dimension": dimension, "scoring": scoring or ScoringConfig(), "user": settings}
    )
    with about(f"the user tower {config.user.kind!r}"), torch.random.fork_rng(devices=()):
        plain, full = _model(config, ()), _model(config, "all")
        _check_reads(plain.user, config, reads_all)
        _check_batches(full.user, config)
        _check_served(full.user, config)
        _check_gradients(full.user, config)
        if export:
            _check_exported(full)


def _model(config: TowerConfig, features: Any) -> TwoTowers:
    """Towers in evaluation mode, the same each time, in which no zeros hide what they multiply."""
    torch.manual_seed(0)
    user = config.user.model_copy(update={"features": features})
    made = TwoTowers(config.model_copy(update={"user": user}), 7, Features(7, (), {}), _FEATURES).eval()
    with torch.no_grad():
        for parameter in made.user.parameters():
            if not parameter.any():
                parameter.normal_(std=0.5)
    return made


def _vectors(config: TowerConfig) -> Tensor:
    """Item vectors [P, D] of the histories."""
    return torch.randn(_EVENTS, config.dimension, generator=torch.Generator().manual_seed(0))


def _histories(config: TowerConfig) -> PackedHistories:
    """An example of each event, with the window that training gives such a tower."""
    firsts, places = torch.tensor(_FIRSTS), torch.arange(_EVENTS)
    is_set = config.user.context in ("leave_one_out", "full_set")
    lasts = torch.tensor([_FIRSTS.count(first) + first for first in _FIRSTS])
    given = config.user.reads_times
    return PackedHistories(
        rows=torch.tensor(_ROWS),
        starts=firsts,
        ends=lasts if is_set else places + 1,
        users=torch.tensor(_USERS),
        ages=torch.linspace(0.0, 1.0, _EVENTS),
        left_out=places if config.user.context == "leave_one_out" else None,
        gaps=torch.tensor(_GAPS) if given else None,
        clocks=torch.tensor(_CLOCKS) if given else None,
    )


def _sliding(config: TowerConfig) -> PackedHistories:
    """Windows that begin anywhere and overlap, of one event to four."""
    histories = _histories(config)
    chosen = torch.tensor([0, 2, 4, 5, 7])
    if histories.left_out is not None or config.user.context == "full_set":
        return _some(histories, chosen)
    return replace(_some(histories, chosen), starts=torch.tensor([0, 1, 1, 5, 6]))


def _some(histories: PackedHistories, examples: Tensor) -> PackedHistories:
    """Some of the examples, of the same packed events."""
    left_out = histories.left_out
    return replace(
        histories,
        starts=histories.starts[examples],
        ends=histories.ends[examples],
        users=histories.users[examples],
        ages=histories.ages[examples],
        left_out=None if left_out is None else left_out[examples],
    )


def _alone(histories: PackedHistories, example: int) -> tuple[PackedHistories, slice]:
    """An example whose batch has nothing but its window, and the window."""
    start, end = int(histories.starts[example]), int(histories.ends[example])
    window, one = slice(start, end), _some(histories, torch.tensor([example]))
    return replace(
        one,
        rows=histories.rows[window],
        starts=one.starts - start,
        ends=one.ends - start,
        left_out=None if one.left_out is None else one.left_out - start,
        gaps=None if one.gaps is None else one.gaps[window],
        clocks=None if one.clocks is None else one.clocks[window],
    ), window


def _reads(histories: PackedHistories) -> Tensor:
    """Which events [P] an example may read: [B, P]."""
    places = torch.arange(_EVENTS)
    inside = (histories.starts[:, None] <= places) & (places < histories.ends[:, None])
    return inside if histories.left_out is None else inside & (places != histories.left_out[:, None])


def _check_reads(tower: UserTower, config: TowerConfig, reads_all: bool) -> None:
    """An event moves the vectors of examples that read it, of no other, and gets its gradient there."""
    histories, given = _histories(config), _vectors(config)
    reads, before = _reads(histories), tower(histories, given)
    holds(before.shape == (_EVENTS, config.dimension), f"it gives vectors {tuple(before.shape)}, not [B, D]")
    # Two values each, as some units of a narrow tower are zero for one.
    changes = [("vectors", given, (3.0, -3.0))]
    if histories.gaps is not None and histories.clocks is not None:
        changes += [("gaps", histories.gaps, (500.0, 9e6)), ("clocks", histories.clocks, (300_000.0, 4000.0))]
    for name, column, values in changes:
        for place in range(_EVENTS):
            moved = torch.zeros(_EVENTS, dtype=torch.bool)
            for value in values:
                changed = column.clone()
                changed[place] = value
                with torch.no_grad():
                    if name == "vectors":
                        after = tower(histories, changed)
                    else:
                        after = tower(replace(histories, **{name: changed}), given)
                moved |= ~torch.isclose(before, after, rtol=0.0, atol=1e-6).all(dim=1)
            strangers, readers = moved[~reads[:, place]], moved[reads[:, place]]
            holds(not strangers.any(), f"other {name} of an event change examples that don't read it")
            # A tower may pass over the clock of an unknown gap.
            if name == "vectors" or bool(column[place] >= 0.0):
                heard = readers.all() if reads_all else readers.any()
                holds(heard, f"other {name} of an event don't change its readers")
    watched = given.clone().requires_grad_()
    (slopes,) = torch.autograd.grad(tower(histories, watched)[4].square().sum(), watched)
    reached = slopes.abs().sum(dim=1) > 0
    holds(not reached[~reads[4]].any(), "events outside of a window get a gradient")
    if reads_all:
        holds(reached[reads[4]].all(), "not all events of a window get a gradient")


def _check_batches(tower: UserTower, config: TowerConfig) -> None:
    """An example alone is the example among others."""
    given = _vectors(config)
    for histories in (_histories(config), _sliding(config)):
        together = tower(histories, given)
        for example in range(len(histories.starts)):
            alone, window = _alone(histories, example)
            found = tower(alone, given[window])[0]
            close(
                found, together[example], "an example alone differs from the same one in a batch", atol=1e-5
            )


def _padded(histories: PackedHistories, given: Tensor, extra: int) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Item vectors [B, T, D], lengths [B], and times [B, T], with what nobody may read behind."""
    reads = _reads(histories)
    lengths = reads.sum(dim=1)
    width = int(lengths.max()) + extra
    history = torch.zeros(len(lengths), width, given.shape[1])
    columns = [column for column in (histories.gaps, histories.clocks) if column is not None]
    times = [torch.full((len(lengths), width), 77.0) for _ in columns]
    for b, held in enumerate(reads):
        history[b, : lengths[b]] = given[held]
        for padded, column in zip(times, columns, strict=True):
            padded[b, : lengths[b]] = column[held]
    return history, lengths, times


def _now(histories: PackedHistories) -> PackedHistories:
    """The examples as they are served, at the age zero."""
    return replace(histories, ages=torch.zeros(len(histories.ages)))


def _requested(histories: PackedHistories) -> dict[str, Tensor]:
    """The features of the examples' users as a request gives them."""
    return {name: torch.as_tensor(column)[histories.users] for name, column in _REQUESTED.items()}


def _check_served(tower: UserTower, config: TowerConfig) -> None:
    """What a bundle serves, with room to spare, is what training saw."""
    histories, given = _now(_sliding(config)), _vectors(config)
    history, lengths, times = _padded(histories, given, extra=2)
    served = tower.served(history, lengths, _requested(histories), tuple(times))
    close(served, tower(histories, given), "`served` differs from `forward`", atol=1e-5)
    reader, first = tower.feature_reader()
    fits = 0 <= first <= reader.in_features - tower.feature_width
    holds(fits, f"feature_reader names a layer without {tower.feature_width} columns from {first} on")


def _check_gradients(tower: UserTower, config: TowerConfig) -> None:
    """Every parameter is trained."""
    found = tower(_histories(config), _vectors(config))
    slopes = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
    torch.autograd.backward((found * slopes).sum())
    for name, parameter in tower.named_parameters():
        trained = parameter.grad is not None and bool(parameter.grad.abs().max() > 0)
        holds(trained, f"the parameter {name!r} gets no gradient")


def _check_exported(model: TwoTowers) -> None:
    """Exported with features, it is torch's to 1e-5, at sizes that the export did not see."""
    config, given = model.config, _vectors(model.config)
    histories = _now(_sliding(config))
    session = Session(user_tower_onnx(model), "user_tower.onnx", "user_vector")
    expected = model.user_vectors(histories, given)
    for extra in (0, 1, 30):
        history, lengths, times = _padded(histories, given, extra)
        inputs = {"history": history, "length": lengths, **dict(zip(TIME_INPUTS, times, strict=False))}
        inputs |= {f"feature_{name}": column for name, column in _requested(histories).items()}
        run = partial(session.run, {name: column.numpy() for name, column in inputs.items()})
        found = torch.from_numpy(run((len(lengths), config.dimension)))
        close(found, expected, "the exported form differs from `forward`", atol=1e-5)
