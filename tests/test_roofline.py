import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.report.roofline import ASCII, UNICODE, Line, Roofline, draw

H200 = Roofline(
    slopes=(Line("DRAM", 4.4e12), Line("cache", 7.4e12)),
    roofs=tuple(
        Line(name, rate * 1e12)
        for name, rate in {
            "int8": 1500,
            "fp8": 1390,
            "bf16": 763,
            "fp16": 763,
            "tf32": 413,
            "fp64": 62.4,
            "fp32": 50.8,
            "vector fp32": 60,
        }.items()
    ),
    ridges={"bf16": 173.4, "fp32": 11.5},
)
rates = st.floats(1e6, 1e18)


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=["unicode", "ascii"])
@pytest.mark.parametrize("width", [80, 120])
def test_every_line_fits_the_terminal(width, glyphs):
    assert max(map(len, draw(H200, width, glyphs))) <= width


@pytest.mark.parametrize("width", [80, 120])
def test_every_roof_and_slope_is_named(width):
    text = "\n".join(draw(H200, width))
    for name in (
        "int8",
        "fp8",
        "bf16",
        "fp16",
        "tf32",
        "fp64",
        "fp32",
        "vector fp32",
        "DRAM 4.40 TB/s",
        "cache 7.40 TB/s",
    ):
        assert name in text


def test_ridges_are_marked_and_listed():
    lines = draw(H200, 80)
    assert any("●" in line for line in lines[:-1])
    assert "● ridge, FLOP/B: bf16 173 · fp32 11.5" in lines[-1]


def test_ascii_is_ascii():
    assert all(line.isascii() for line in draw(H200, 80, ASCII))


def test_a_higher_roof_is_drawn_higher():
    lines = draw(H200, 120)
    rows = [
        next(n for n, line in enumerate(lines) if line.endswith(name)) for name in ("int8, fp8", "bf16, fp16", "tf32")
    ]
    assert rows == sorted(rows)
    assert len(set(rows)) == 3


def test_left_of_the_ridge_of_memory_a_roof_is_dotted():
    line = next(line for line in draw(H200, 120) if line.endswith(" tf32"))
    dotted, solid = line.split("●")
    assert "╌" in dotted
    assert "─" not in dotted
    assert "╌" not in solid


def test_without_a_slope_or_a_roof_there_is_nothing_to_draw():
    assert draw(Roofline((), H200.roofs), 80) == []
    assert draw(Roofline(H200.slopes, ()), 80) == []


@given(
    slopes=st.lists(rates, min_size=1, max_size=2),
    roofs=st.lists(rates, min_size=1, max_size=8),
    width=st.integers(80, 200),
)
def test_any_machine_can_be_drawn(slopes, roofs, width):
    roofline = Roofline(
        tuple(Line(f"m{n}", rate) for n, rate in enumerate(slopes)),
        tuple(Line(f"r{n}", rate) for n, rate in enumerate(roofs)),
    )
    for glyphs in (UNICODE, ASCII):
        lines = draw(roofline, width, glyphs)
        assert max(map(len, lines)) <= width
