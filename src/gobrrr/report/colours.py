"""The colours of regimes and of the page, by theme: the one place that names a colour.

A regime has one hue everywhere: in bars, bubbles, trees and the timeline. Blue, amber, rose and teal stay apart for eyes
that lack a cone, and uncounted is grey because nobody knows; tests hold both.
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
        Regime.COMPUTE.value: "#2f6bd0",
        Regime.BANDWIDTH.value: "#dc9000",
        Regime.OVERHEAD.value: "#c1345c",
        Regime.COMMUNICATION.value: "#0f8f7e",
        Regime.UNCOUNTED.value: "#9298a2",
    },
)
DARK = Theme(
    paper="#121419",
    card="#1a1d23",
    ink="#e9eaed",
    muted="#9ca3ae",
    line="#2c3038",
    regimes={
        Regime.COMPUTE.value: "#6ea4ff",
        Regime.BANDWIDTH.value: "#f2b23c",
        Regime.OVERHEAD.value: "#f0698c",
        Regime.COMMUNICATION.value: "#35bfa9",
        Regime.UNCOUNTED.value: "#858c97",
    },
)
THEMES = {"light": LIGHT, "dark": DARK}
