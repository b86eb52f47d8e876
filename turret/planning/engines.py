"""What to turn to where one machine ends. A distributed engine is named only if it was measured."""

from turret.planning.figures import Figures

TORCHRUN = "torchrun --nproc-per-node N -m turret train"


def preparation_remedy(figures: Figures) -> str:
    """For a log that does not fit the disk."""
    machine = "a larger disk"
    if "spark" not in figures.engines:
        return machine
    return f"{machine}, or Spark: `turret data prepare --engine spark://HOST:7077`"


def training_remedy(figures: Figures) -> str:
    """For an item table that does not fit the memory of one process."""
    smaller = "more memory, or a smaller dimension"
    if "torchrun" not in figures.engines:
        return smaller
    return f"{smaller}, or processes that split the item table: `{TORCHRUN}`"


def slow_training_remedy(figures: Figures) -> str:
    """For a training that takes too long."""
    less = "warm starts (`turret retrain`), fewer epochs, or a GPU"
    measured = figures.engines.get("torchrun")
    if measured is None:
        return less
    gain = f"two were {measured['speedup_2_over_1']:.1f} times as fast as one"
    return f"{less}; or several processes, `{TORCHRUN}`: {gain}"


def retrieval_remedy(figures: Figures) -> str:
    """For a catalog whose vectors do not fit the memory of the service."""
    smaller = "more memory, or a smaller dimension"
    if "retrieval" not in figures.engines:
        return smaller
    return (
        f"{smaller}, or a vector engine: `turret publish --engine milvus://HOST:19530` or `redis://HOST:6379`"
    )
