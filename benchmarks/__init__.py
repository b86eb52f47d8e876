"""Every claim of the README, as a script that anyone can rerun: `python -m benchmarks.NAME --json`."""
