"""Outcomes of logged answers: their attribution, the lift of a canary, and the value of other versions."""
