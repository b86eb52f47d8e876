"""Objective, samplers, loop, evaluation and export: from prepared data to a bundle."""

import os

from training.memory import keep_freed_memory

# Threads that spin while they wait for each other take the cores from whatever else runs on the machine, and
# from each other: on two busy cores a step takes thirty times as long. It must be set before torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

keep_freed_memory()
