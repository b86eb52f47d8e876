"""What ranking the catalog for a user of the validation costs, by catalog and width: PREPARED RUN D USERS.

Of a large catalog few users are ranked at a time, as their scores are kept small, and each of these blocks
reads all item vectors: the cost of a user grows with the square of the items.
"""

import json
import sys
import time
from pathlib import Path

import torch

from turret.data.prepared import PreparedData
from turret.training.config.experiment import load_experiment
from turret.training.run import Run
from turret.training.trainer import Trainer


def main() -> None:
    """Rank once for so many users with an untrained model, in one thread."""
    prepared, run, dimension, users = sys.argv[1:]
    torch.set_num_threads(1)
    data = PreparedData.open(Path(prepared))
    changes = [f"tower.dimension={dimension}", f"training.validation_users={users}"]
    experiment = load_experiment("youtubednn", changes)
    trainer = Trainer(Run(Path(run), experiment, data.folder, data.fingerprint), data, lambda line: None)
    assert trainer.users is not None
    begun = time.process_time()
    trainer.validation.metric_of(trainer.users)
    count = len(trainer.users.users)
    print(json.dumps({"users": count, "seconds_per_user": (time.process_time() - begun) / count}))


if __name__ == "__main__":
    main()
