"""Faults of the package training."""
