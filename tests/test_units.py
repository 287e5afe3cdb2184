import math
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gobrrr import units
from gobrrr.errors import UsageError

PRINTERS = [
    units.seconds,
    units.capacity,
    units.moved,
    units.flops,
    units.flops_per_s,
    units.bytes_per_s,
    units.per_byte,
    units.count,
    units.percent,
    units.times,
]
MAGNITUDES = st.floats(1e-12, 1e21)
DIGITS = st.integers(1, 6)


def last_digit(value: float, digits: int) -> float:
    """The size of the last digit of `digits` significant ones, by decimal arithmetic."""
    return float(Decimal(1).scaleb(Decimal(value).adjusted() - digits + 1))


@pytest.mark.parametrize(
    ("printed", "parsed", "largest"),
    [
        (units.seconds, units.parse_seconds, 1e6),
        (units.capacity, units.parse_bytes, 1e21),
        (units.moved, units.parse_bytes, 1e21),
        (units.times, units.parse_times, 1e6),
    ],
)
@given(data=st.data())
def test_parsing_inverts_printing_up_to_the_digits_printed(printed, parsed, largest, data):
    value, digits = data.draw(st.floats(0, largest)), data.draw(DIGITS)
    half_a_digit = 0.5 * 10 ** (1 - digits) * value
    # Minutes come with whole seconds, however many digits were asked for.
    half_a_second = 0.5 if printed is units.seconds and value > 59 else 0
    assert parsed(printed(value, digits)) == pytest.approx(value, abs=1.001 * (half_a_digit + half_a_second))


@given(MAGNITUDES, DIGITS)
@example(9.996, 3)
@example(0.9996, 3)
def test_significant_rounds_as_decimal_arithmetic_does(value, digits):
    text = units.significant(value, digits)
    assert abs(Decimal(text) - Decimal(value)) <= Decimal(last_digit(value, digits)) * Decimal("0.500001")
    fraction = text.partition(".")[2]
    assert not fraction or len(text.replace(".", "").lstrip("0")) == digits


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(1234.5, 3, "1230"), (0.00012345, 3, "0.000123"), (9.996, 3, "10.0"), (-0.05, 1, "-0.05"), (0, 3, "0")],
)
def test_no_digit_is_printed_that_the_rounding_invented(value, digits, text):
    assert units.significant(value, digits) == text


@given(st.floats(1e-6, 10), st.floats(1e-6, 10))
def test_more_noise_never_prints_more_digits(spread, other):
    noisier, quieter = max(spread, other), min(spread, other)
    assert units.digits_for(noisier) <= units.digits_for(quieter)


@given(st.floats(1e-2, 1), st.floats(1, 9.99))
def test_the_last_digit_is_of_the_size_of_the_noise(spread, value):
    digits = units.digits_for(spread)
    assert spread / 200 <= last_digit(value, digits) / value <= spread


@pytest.mark.parametrize(
    ("spread", "text"), [(0.5, "93 ms"), (0.05, "92.6 ms"), (0.005, "92.59 ms"), (None, "92.6 ms")]
)
def test_digits_follow_the_noise(spread, text):
    assert units.seconds(0.09259, units.digits_for(spread)) == text


@pytest.mark.parametrize(
    ("printed", "text"),
    [
        (units.seconds(0.9996), "1.00 s"),
        (units.seconds(0.9994), "999 ms"),
        (units.seconds(999.6e-6), "1.00 ms"),
        (units.seconds(59.94), "59.9 s"),
        (units.seconds(59.96), "1 min"),
        (units.seconds(65), "1 min 5 s"),
        (units.moved(999_600), "1.00 MB"),
        (units.moved(999_400), "999 kB"),
        (units.capacity(1023.9 * 2**20), "1.00 GiB"),
        (units.capacity(141e9), "131 GiB"),
        (units.flops_per_s(989.4e12), "989 TFLOP/s"),
        (units.flops_per_s(999.9e12), "1.00 PFLOP/s"),
        (units.count(335e6), "335 M"),
        (units.per_byte(295.2), "295 FLOP/B"),
    ],
)
def test_a_value_is_printed_in_the_unit_that_its_rounding_reaches(printed, text):
    assert printed == text


@given(st.floats(1e-9, 59.9))
def test_no_time_is_printed_as_a_thousand_of_a_smaller_unit(value):
    number, unit = units.seconds(value).split()
    assert unit == "min" or float(number) < 1000


@pytest.mark.parametrize(
    ("printed", "text"),
    [(units.count(12), "12"), (units.count(0), "0"), (units.capacity(1), "1 B"), (units.moved(-3), "-3 B")],
)
def test_what_is_counted_in_ones_has_no_decimals(printed, text):
    assert printed == text


@pytest.mark.parametrize("printer", PRINTERS)
def test_unknown_prints_as_a_question_mark(printer):
    assert printer(None) == "?"


@pytest.mark.parametrize("printer", PRINTERS)
@given(value=MAGNITUDES)
def test_a_negative_value_is_its_mirror_image_behind_a_minus(printer, value):
    mirrored = printer(-value)
    assert mirrored in {f"-{printer(value)}", printer(0.0)}


@pytest.mark.parametrize("printer", PRINTERS)
@pytest.mark.parametrize("value", [0.0, -0.0])
def test_zero_has_no_sign(printer, value):
    assert printer(value).startswith("0")


@pytest.mark.parametrize(
    ("printed", "text"), [(units.seconds(4e-13), "0.000400 ns"), (units.seconds(-3e-10), "-0.300 ns")]
)
def test_what_is_below_the_smallest_unit_stays_in_it_in_plain_notation(printed, text):
    assert printed == text


@pytest.mark.parametrize("printer", PRINTERS)
def test_a_ratio_that_ran_away_still_prints(printer):
    assert "inf" in printer(math.inf)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (units.parse_seconds, "5m", 300),
        (units.parse_seconds, "90s", 90),
        (units.parse_seconds, " 250 ms ", 0.25),
        (units.parse_seconds, "2h", 7200),
        (units.parse_seconds, "1.5", 1.5),
        (units.parse_seconds, "3us", 3e-6),
        (units.parse_seconds, "1 min 5 s", 65),
        (units.parse_bytes, "64MiB", 64 * 2**20),
        (units.parse_bytes, "1.5 GB", 1.5e9),
        (units.parse_bytes, "1gib", 2**30),
        (units.parse_bytes, "4096", 4096),
        (units.parse_bytes, "2 PB", 2e15),
        (units.parse_times, "2x", 2),
        (units.parse_times, ".5", 0.5),
    ],
)
def test_people_write_units_in_several_ways(parse, text, value):
    assert parse(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("parse", "known"),
    [
        (units.parse_seconds, ["s", "ms", "us", "ns", "m", "min", "h"]),
        (units.parse_bytes, ["B", "KiB", "MiB", "GiB", "TiB", "kB", "MB", "GB", "TB", "PB", "EB"]),
        (units.parse_times, ["x"]),
    ],
)
@pytest.mark.parametrize("text", ["", "fast", "5 parsecs", "-1", "1 2", "1e999", "nan", "1 min 5 parsecs"])
def test_bad_text_is_refused_with_the_units_one_may_write(parse, known, text):
    with pytest.raises(UsageError) as caught:
        parse(text)
    listed = str(caught.value).partition("one of ")[2].split(", ")
    assert set(known) <= set(listed)


@pytest.mark.parametrize(
    ("age_s", "text"),
    [(3, "just now"), (60, "1 minute ago"), (7199, "1 hour ago"), (7200, "2 hours ago"), (9e5, "10 days ago")],
)
def test_an_age_is_told_in_the_largest_whole_unit(age_s, text):
    assert units.age(age_s) == text
