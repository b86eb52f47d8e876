"""How a process finds the others of its training."""

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
