"""Faults of the package turret."""
