"""What an attack is, and what comes of one."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.abuse_attacks.target import Target


class NotCarriedOutError(Exception):
    """An attack could not be made, so that its figures say nothing."""


@dataclass
class Outcome:
    """What an attack saw.

    Attributes:
        answers: how many of each status (or of another outcome, by name) the attacker got.
        opened: answers that let in somebody who should not have been.
        held: whether the service did as it should, as far as this attack's own answers tell.
        notes: further figures of this attack.
    """

    answers: Counter[str] = field(default_factory=Counter)
    opened: int = 0
    held: bool = True
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Scene:
    """A running service and how long an attack may take, in seconds."""

    target: "Target"
    seconds: float
    quick: bool

    def count(self, whole: int) -> int:
        """How many of something: all, or a fifth in a quick run."""
        return max(1, whole // 5) if self.quick else whole


@dataclass(frozen=True)
class Attack:
    """An attack on a service that was started for it.

    Attributes:
        name: how it is called on the command line.
        point: what of the security review it repeats; 0: kin of several.
        act: makes the attack; raises NotCarriedOutError when that isn't possible.
        settings: TURRET_* of the service, without the prefix.
        edge: it comes from one address through nginx with the limits of the production profile, which are
            what docs/security.md has against it.
        open_files: the limit of file descriptors of each process of the service.
        prepare: is given the working directory, and whether the run is quick, before the service starts.
        may_refuse: the service may as well refuse to start with these settings.
        stall_counts: False where the attack itself stops or ends processes, so that waiting says nothing.
        seconds: how long the attack may go on.
    """

    name: str
    point: int
    act: Callable[[Scene], Outcome]
    settings: Mapping[str, str] = field(default_factory=dict)
    edge: bool = False
    open_files: int | None = None
    prepare: Callable[[Path, bool], None] | None = None
    may_refuse: bool = False
    stall_counts: bool = True
    seconds: float = 5.0
