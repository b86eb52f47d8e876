"""Every claim of the README, as a script that anyone can rerun: `python -m benchmarks.NAME --json`."""

# Before any script loads torch, so that its threads wait for each other as they do when Turret trains.
import training as training
