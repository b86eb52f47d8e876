"""Kinds of events, and the role of each in training, histories and answers."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, StrictBool, model_validator

Role = Literal["target", "signal", "negative", "ignored"]
Finite = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_DAY = 86_400_000  # milliseconds


class Kind(BaseModel, frozen=True, extra="forbid"):
    """The meaning of a kind.

    `role`: a target is trained and evaluated as a next item, and read in histories; a signal is read in
    histories alone; a negative is an item that the user did not choose; an ignored event is dropped. `weight`
    is how much a target counts in training. After an event of a kind that `consume`s, its item is left out of
    the user's answers: for ever (true), or for so many days.
    """

    role: Role = "target"
    weight: Finite = 1.0
    consume: StrictBool | Finite = False

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.consume and self.role == "ignored":
            raise ValueError("an ignored kind is not stored, so it can't consume; give it another role")
        return self


def text_of_kind(kind: Kind) -> str:
    """Return a kind as the options give it: ROLE[:WEIGHT][:consume[=DAYS]]."""
    weight = "" if kind.weight == 1 else f":{kind.weight:g}"
    days = "" if kind.consume is True else f"={kind.consume:g}"
    return f"{kind.role}{weight}" + (f":consume{days}" if kind.consume else "")


def _parsed(value: object) -> object:
    """Read ROLE[:WEIGHT][:consume[=DAYS]] as a table."""
    if not isinstance(value, str):
        return value
    role, *rest = value.split(":")
    table: dict[str, Any] = {"role": role.strip() or "target"}
    for part in rest:
        name, has_days, days = map(str.strip, part.partition("="))
        key, setting = (
            ("consume", days if has_days else True) if name == "consume" else ("weight", part.strip())
        )
        if key in table:
            raise ValueError(f"{value!r} has two of {key}; give ROLE[:WEIGHT][:consume[=DAYS]]")
        table[key] = setting
    return table


def _named(value: object) -> object:
    """Read a list of NAME[=ROLE...] as a table."""
    if not isinstance(value, (list, tuple)):
        return value
    pairs = [str(entry).partition("=")[::2] for entry in value]
    names = [name.strip() for name, _ in pairs]
    if "" in names or len({*names}) < len(names):
        raise ValueError(
            "each kind has a name of its own; give NAME=ROLE[:WEIGHT][:consume[=DAYS]] once for each"
        )
    return {name: role for name, (_, role) in zip(names, pairs, strict=True)}


KindTable = Annotated[dict[str, Annotated[Kind, BeforeValidator(_parsed)]], BeforeValidator(_named)]
"""Kinds by name, in TOML as tables or as texts ROLE[:WEIGHT][:consume[=DAYS]]; empty if events are alike."""


def row_codes(kinds: Mapping[str, Kind]) -> dict[str, int]:
    """Return the code of each kind whose rows are events, from 0 up, or negatives, from -1 down."""
    events = {name: code for code, name in enumerate(read_kinds(kinds))}
    return events | {name: -1 - place for place, name in enumerate(negative_kinds(kinds))}


def read_kinds(kinds: Mapping[str, Kind]) -> tuple[str, ...]:
    """Return the names of the kinds that histories have; the position of each is its code."""
    return tuple(name for name, kind in kinds.items() if kind.role in ("target", "signal"))


def negative_kinds(kinds: Mapping[str, Kind]) -> tuple[str, ...]:
    """Return the names of the negative kinds; their codes are -1, -2 and so on."""
    return tuple(name for name, kind in kinds.items() if kind.role == "negative")


def target_codes(kinds: Mapping[str, Kind]) -> list[int]:
    """Return the codes of the targets, ascending."""
    return [code for code, name in enumerate(read_kinds(kinds)) if kinds[name].role == "target"]


Seen = bool | tuple[str, ...] | None
"""The events whose items answers leave out: all (true), none (false), events of these kinds, or (None) events
of the kinds that consume, which are all events where there are no kinds."""


def left_out_for(kinds: Mapping[str, Kind], seen: Seen, names: Sequence[str] | None = None) -> list[float]:
    """Return by kind code for how many milliseconds an event's item is left out: 0 for never, inf for ever.

    The last entry belongs to code -1, an event without a known kind, as all events are in data without kinds.
    The item of such an event is left out only if `seen` covers all events. With `names`, the entries are for
    these kinds instead of the kinds of histories.
    """
    read = read_kinds(kinds) if names is None else names
    if isinstance(seen, tuple):
        return [*(inf if name in seen else 0.0 for name in read), 0.0]
    if seen is None and read:
        spans = [kinds[name].consume for name in read]
        return [*(inf if span is True else float(span) * _DAY for span in spans), 0.0]
    return [0.0 if seen is False else inf] * (len(read) + 1)
