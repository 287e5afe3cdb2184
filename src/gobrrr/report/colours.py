"""The colours of regimes and of the page, by theme: the one place that names a colour.

A regime has one hue everywhere: in bars, bubbles, trees and the timeline. Blue, amber, red and green stay apart for
eyes that lack a cone, and uncounted is grey because nobody knows.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gobrrr.diagnose.regime import Regime


@dataclass(frozen=True, slots=True)
class Theme:
    paper: str
    card: str
    ink: str
    muted: str
    line: str
    regimes: Mapping[str, str]


LIGHT = Theme(
    paper="#fbfaf8",
    card="#ffffff",
    ink="#1b1d22",
    muted="#636974",
    line="#e5e3de",
    regimes={
        Regime.COMPUTE.value: "#2a57c6",
        Regime.BANDWIDTH.value: "#d58c00",
        Regime.OVERHEAD.value: "#b52645",
        Regime.COMMUNICATION.value: "#0d8863",
        Regime.UNCOUNTED.value: "#929aa4",
    },
)
DARK = Theme(
    paper="#121419",
    card="#1a1d23",
    ink="#e9eaed",
    muted="#9ca3ae",
    line="#2c3038",
    regimes={
        Regime.COMPUTE.value: "#6a93ff",
        Regime.BANDWIDTH.value: "#f5ad30",
        Regime.OVERHEAD.value: "#f2485f",
        Regime.COMMUNICATION.value: "#4bd6b0",
        Regime.UNCOUNTED.value: "#646c78",
    },
)
THEMES = {"light": LIGHT, "dark": DARK}
