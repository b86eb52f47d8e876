"""Faults that a test has to notice, each put in the place of one function: `python -m tests.planted`."""
