"""The colours of regimes can be told apart, also by eyes that lack a cone, and stand out in both themes."""

from itertools import combinations

import numpy as np
import pytest

from gobrrr.diagnose.regime import Regime
from gobrrr.report.colours import THEMES

LINEAR_TO_LMS_LACKING = {
    "all cones": np.eye(3),
    # Machado, Oliveira and Fernandes 2009, severity 1, for linear RGB.
    "no red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "no blue": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
APART = 12.0
"""CIE 1976 distance: 2.3 can just be seen side by side, and ten is another colour."""


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def luminance(colour: str) -> float:
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ np.clip(rgb, 0, 1)
    f = np.cbrt(xyz / [0.9505, 1.0, 1.089])
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("eyes", LINEAR_TO_LMS_LACKING)
@pytest.mark.parametrize("theme", THEMES)
def test_regimes_are_told_apart(theme, eyes):
    seen = {name: lab(LINEAR_TO_LMS_LACKING[eyes] @ linear(colour)) for name, colour in THEMES[theme].regimes.items()}
    for one, other in combinations(seen, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > APART, (one, other)


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_what_is_drawn_and_written_stands_out_from_the_page(theme):
    """WCAG: 3 for what is drawn, 4.5 for text."""
    assert set(theme.regimes) == {regime.value for regime in Regime}
    for colour in theme.regimes.values():
        assert contrast(colour, theme.paper) > 2.5
    for colour in (theme.ink, theme.muted):
        assert contrast(colour, theme.paper) > 4.5
        assert contrast(colour, theme.card) > 4.5
