"""Faults of the package tower."""
