"""The counterfactual: how long a step would take if one of its two sides needed less.

Host and device work side by side, so a step takes as long as the slower of them, and what the faster one saves is
saved for nothing. On a CPU they are one and the same, and their times add.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sides:
    """What a step needs of each."""

    host_s: float | None
    """None where nobody watched the host, as in some traces."""
    device_s: float
    serial: bool


def step_s(host_s: float, device_s: float, *, serial: bool) -> float:
    return host_s + device_s if serial else max(host_s, device_s)


def at_stake(sides: Sides, *, host_less_s: float = 0.0, device_less_s: float = 0.0) -> float | None:
    """Step seconds that a change gives, if it takes so much off either side.

    Both terms come from one model, so changing nothing gives exactly 0 whatever the model gets wrong. Never below 0: a
    change that costs time is not made. Where the host is unknown it may be what everything waits for, so device
    seconds say nothing about the step.
    """
    if not host_less_s and not device_less_s:
        return 0.0
    if sides.host_s is None:
        return None
    now = step_s(sides.host_s, sides.device_s, serial=sides.serial)
    host_s, device_s = max(0.0, sides.host_s - host_less_s), max(0.0, sides.device_s - device_less_s)
    return max(0.0, now - step_s(host_s, device_s, serial=sides.serial))
