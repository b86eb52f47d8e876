"""Activation of a version, after a comparison of its metrics with those of another one."""
