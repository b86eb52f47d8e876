"""`turret report samplers`: bias, variance and cost of each sampler."""

__all__ = ["samplers"]
