"""Activation of a version in a folder or a running service, after a comparison with another one."""
