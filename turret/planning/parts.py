"""A part of a plan: what it holds and takes."""

from dataclasses import dataclass

from turret.planning.amounts import Amount


@dataclass(frozen=True)
class Part:
    """Bytes of memory and of disk, and seconds; None where the part has none.

    `passing_memory` and `passing_disk` are needed for a while only: by an activation, or while files are
    sorted. Both are those of each machine, or with `is_split` of all machines together. `notes` are sentences
    for people.
    """

    name: str
    memory: Amount | None = None
    disk: Amount | None = None
    seconds: Amount | None = None
    passing_memory: Amount | None = None
    passing_disk: Amount | None = None
    machines: int = 1
    is_split: bool = False
    notes: tuple[str, ...] = ()

    @property
    def most_memory(self) -> float:
        """The most bytes of memory at a time."""
        return max(amount.value if amount else 0.0 for amount in (self.memory, self.passing_memory))

    @property
    def most_disk(self) -> float:
        """The most bytes of disk at a time."""
        return max(amount.value if amount else 0.0 for amount in (self.disk, self.passing_disk))

    @property
    def beyond(self) -> dict[str, float]:
        """The largest measured value of each size that exceeds it."""
        amounts = (self.memory, self.disk, self.seconds, self.passing_memory, self.passing_disk)
        return dict(sum((amount for amount in amounts if amount), Amount(0.0)).beyond)
