"""Numbers to text and back: the one place where a unit is written or read.

Inside the program every number is in SI base units (seconds, bytes, FLOPs, and those per second) and its
name says which. Unknown is `None` and prints as a question mark.
"""

import math
import re
from collections.abc import Mapping

from gobrrr.errors import UsageError

UNKNOWN = "?"

_SECOND_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SI_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_BINARY_PREFIXES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


def seconds(value: float | None, digits: int = 3) -> str:
    """The unit a person would say: 1.25 µs, 92.6 ms, 1 min 5 s."""
    if value is None:
        return UNKNOWN
    rounded = float(significant(abs(value), digits))
    if 60 <= rounded < math.inf:
        sign = "-" if value < 0 else ""
        minutes, rest = divmod(round(rounded), 60)
        return f"{sign}{minutes} min {rest} s" if rest else f"{sign}{minutes} min"
    return _scaled(value, _SECOND_UNITS, digits)


def capacity(value: float | None, digits: int = 3) -> str:
    """Bytes that something holds, in powers of two: 141 GB of HBM are 132 GiB."""
    return UNKNOWN if value is None else _scaled(value, _BINARY_PREFIXES, digits)


def moved(value: float | None, digits: int = 3) -> str:
    """Bytes that travel, in powers of ten, so that they divide by a rate in GB/s without surprise."""
    return UNKNOWN if value is None else _scaled(value, _suffixed("B"), digits)


def flops(value: float | None, digits: int = 3) -> str:
    return UNKNOWN if value is None else _scaled(value, _suffixed("FLOP"), digits)


def flops_per_s(value: float | None, digits: int = 3) -> str:
    return UNKNOWN if value is None else _scaled(value, _suffixed("FLOP/s"), digits)


def bytes_per_s(value: float | None, digits: int = 3) -> str:
    return UNKNOWN if value is None else _scaled(value, _suffixed("B/s"), digits)


def per_byte(value: float | None, digits: int = 3) -> str:
    """Arithmetic intensity."""
    return UNKNOWN if value is None else f"{significant(value, digits)} FLOP/B"


def count(value: float | None, digits: int = 3) -> str:
    """How many there are: 335 M parameters, 12 calls."""
    return UNKNOWN if value is None else _scaled(value, _suffixed(""), digits)


def percent(fraction: float | None, digits: int = 1) -> str:
    return UNKNOWN if fraction is None else f"{100 * fraction:z.{digits}f} %"


def times(ratio: float | None, digits: int = 3) -> str:
    """A ratio of two like things: 1.75x."""
    return UNKNOWN if ratio is None else f"{significant(ratio, digits)}x"


def age(age_s: float) -> str:
    """How long ago, coarsely: nobody cares for the seconds of a measurement made last week."""
    for size_s, word in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if age_s >= size_s:
            number = int(age_s // size_s)
            return f"{number} {word}{'s' if number != 1 else ''} ago"
    return "just now"


def significant(value: float, digits: int = 3) -> str:
    """Rounded to so many significant digits, in plain notation, with no digit that the rounding invented.

    1234.5 at 3 digits is 1230, 0.00012345 is 0.000123.
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:zg}"
    rounded = round(value, digits - 1 - math.floor(math.log10(abs(value))))
    # Of the rounded value: 9.996 at 3 digits is 10.0 and not 10.00.
    decimals = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:.{max(0, decimals)}f}"


def digits_for(relative_spread: float | None) -> int:
    """As many digits as the noise allows: the last one printed is about as large as half the spread."""
    if relative_spread is None or relative_spread <= 0:
        return 3
    return min(4, max(1, 1 - math.floor(math.log10(relative_spread))))


def parse_seconds(text: str) -> float:
    """`5m`, `90s`, `250 ms`, `2h`, `1 min 5 s`; a bare number is seconds."""
    if sum_of_two := re.fullmatch(r"(.*min)\s+([0-9].*)", text):
        return parse_seconds(sum_of_two[1]) + parse_seconds(sum_of_two[2])
    return _parsed(
        text,
        {"": 1, "s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "m": 60, "min": 60, "h": 3600},
        "a time",
    )


def parse_bytes(text: str) -> float:
    """`64MiB`, `1.5 GB`, `4096`."""
    units = {name: size for size, name in (*reversed(_BINARY_PREFIXES), *reversed(_suffixed("B")))}
    return _parsed(text, {"": 1, **units}, "a size")


def parse_times(text: str) -> float:
    """`2x` or `2`."""
    return _parsed(text, {"": 1, "x": 1}, "a ratio")


def _parsed(text: str, units: Mapping[str, float], what: str) -> float:
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([a-zA-Zµ]*)\s*", text)
    unit = None if match is None else match[2]
    scale = next((size for name, size in units.items() if name == unit), None)
    if scale is None and unit is not None:
        scale = next((size for name, size in units.items() if name.lower() == unit.lower()), None)
    if match is None or scale is None or not math.isfinite(float(match[1])):
        known = ", ".join(name for name in units if name)
        raise UsageError(f"{text!r} is not {what}: write a number and one of {known}")
    return float(match[1]) * scale


def _suffixed(unit: str) -> tuple[tuple[float, str], ...]:
    return tuple((size, f"{prefix}{unit}") for size, prefix in _SI_PREFIXES)


def _scaled(value: float, units: tuple[tuple[float, str], ...], digits: int) -> str:
    """The largest unit in which the rounded value is at least 1, else the smallest unit.

    A smallest unit of 1 is a thing one counts: 12 calls are 12, not 12.0.
    """
    reached = (unit for unit in units if float(significant(abs(value) / unit[0], digits)) >= 1)
    size, unit = next(reached, units[-1])
    text = significant(value / size, digits)
    if size == units[-1][0] == 1 and float(value).is_integer():
        text = text.partition(".")[0]
    return f"{text} {unit}".rstrip()
