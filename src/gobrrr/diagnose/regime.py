"""Regime: what a piece of time was spent on."""

from enum import StrEnum


class Regime(StrEnum):
    COMPUTE = "compute"
    BANDWIDTH = "bandwidth"
    OVERHEAD = "overhead"
    COMMUNICATION = "communication"
    UNCOUNTED = "uncounted"
    """Kernels of unknown work: said out loud, never spread over the others."""
