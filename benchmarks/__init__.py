"""Every claim of the README, as a script that anyone can rerun: `python -m benchmarks.NAME --json`."""

from turret.training.process import set_up_process

# This has to run before any script loads torch, as in the command line.
set_up_process()
