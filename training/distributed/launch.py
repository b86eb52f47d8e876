"""The launch of `torchrun` that a process belongs to, and the way into its world."""

import os
import platform
from pathlib import Path

from turret.training.distributed.world import World, process_count


def join_world() -> World:
    """The world that `torchrun` has started this process in; without it, a world of one.

    Raises:
        TrainingError: the other processes can't be reached.
    """
    if process_count() == 1:
        return World()
    # torch.distributed is only imported where there are several processes.
    from turret.training.distributed.processes import Processes

    return Processes.joined()


def launch_name() -> str | None:
    """A name of the launch, which its restarts keep and no other launch has; None without `torchrun`.

    Several launches may have the same `--rdzv-id`, or none: the name also has the machine of `torchrun`, its
    process and the start of it.
    """
    run_id = os.environ.get("TORCHELASTIC_RUN_ID")
    if run_id is None:
        return None
    agent = os.getppid()
    return f"{run_id} {platform.node()} {agent} {_start(agent)}".rstrip()


def _start(pid: int) -> str:
    """When a process was started, in ticks since the start of the system; empty where it is not known."""
    try:
        # The second field, the name of the program, is in brackets and may have spaces.
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return ""
