import io
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from rich.console import Console

from gobrrr.machine import datasheets
from gobrrr.machine.ceilings import Ceilings
from gobrrr.machine.doubts import Doubt
from gobrrr.machine.elsewhere import ceilings_of
from gobrrr.report.machine import all_doubts, render, view
from gobrrr.report.progress import progress_line

H200 = Ceilings(
    device="NVIDIA H200",
    kind="cuda",
    threads=16,
    measured_at="2026-11-14T03:00:00+00:00",
    torch="2.11.0+cu130",
    host="a Xeon",
    matmul_flops_per_s={"bf16": 763.123e12, "fp32": 50.8e12},
    vector_flops_per_s={"fp32": 59e12},
    transcendental_cost={"cos": 21.4},
    dram_bytes_per_s=4.4e12,
    cache_bytes_per_s=7.4e12,
    shortest_kernel_class_s={"elementwise": 1.1e-6},
    dispatch_s=7.123e-6,
    spread={"matmul_flops_per_s.bf16": 0.004, "dispatch_s": 0.2},
    unmeasured={"matmul.fp8": "torch refuses"},
    doubts=(Doubt("it was hot", "cool it"),),
)
SHEET = datasheets.find("NVIDIA H200")
NOW = datetime(2026, 11, 15, 4, tzinfo=UTC)


def page(ceilings=H200, sheet=SHEET, width=80, encoding="utf-8") -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    render(view(ceilings, sheet, NOW), Console(file=file, width=width, highlight=False))
    file.seek(0)
    return file.read()


def row(name: str, text: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.strip().startswith(name))


def test_a_row_has_the_rate_its_spread_the_datasheet_and_the_share():
    assert row("bf16", page()) == ["bf16", "763.1", "TFLOP/s", "0.2", "%", "990", "TFLOP/s", "77", "%"]


def test_noise_takes_digits_away():
    assert row("eager op", page())[:5] == ["eager", "op", "7.1", "µs", "10.0"]


def test_what_is_unknown_has_no_row_and_a_reason():
    text = page()
    assert "graph replay" not in text
    assert "matmul.fp8 (torch refuses)" in text


def test_without_a_datasheet_there_is_no_column_for_it_and_it_says_so():
    text = page(sheet=None)
    assert "of it" not in text
    assert "no datasheet under this name" in text


def test_the_page_says_how_old_the_measurement_is():
    assert "measured 1 day ago" in page()


@pytest.mark.parametrize(
    ("device", "facts"), [("NVIDIA H200", "never measured"), ("?", "never measured; no datasheet")]
)
def test_ceilings_that_nobody_measured_are_not_called_so(device, facts):
    ceilings, _ = ceilings_of(device)
    page = view(ceilings, datasheets.find(device), datetime.now(UTC))
    assert page.known_by == "assumed"
    assert any(fact.startswith(facts) for fact in page.facts)
    assert not any("threads" in fact or " ago" in fact for fact in page.facts)


def test_doubts_come_with_their_remedies():
    assert "doubt: it was hot; cool it" in page()


def test_doubts_are_of_the_moment_of_the_noise_and_of_the_datasheet():
    fast = replace(H200, dram_bytes_per_s=6e12)
    assert [doubt.what for doubt in all_doubts(fast, SHEET)] == [
        "it was hot",
        "one value is noisy: dispatch by ± 10 %",
        "memory bandwidth measured 25 % above its datasheet",
    ]


def test_the_last_line_is_the_next_command():
    assert page().rstrip().splitlines()[-1] == "next: gobrrr count FILE.py:NAME"


@pytest.mark.parametrize("width", [80, 120])
def test_the_page_fits_the_terminal(width):
    assert max(len(line) for line in page(width=width).splitlines()) <= width


def test_a_terminal_without_unicode_gets_ascii():
    assert page(encoding="ascii").isascii()


def test_a_cpu_shows_one_parallel_region_for_all_classes():
    text = page(replace(H200, kind="cpu", shortest_kernel_s=2e-6))
    assert "parallel region" in text
    assert "elementwise" not in text


def test_nothing_measured_is_still_a_page():
    assert "next:" in page(Ceilings(device="x", kind="xpu", threads=1, measured_at="2026-11-14T03:00:00+00:00"), None)


def test_progress_is_silent_where_nobody_watches():
    file = io.StringIO()
    with progress_line("measuring", Console(file=file)) as progress:
        progress(1, 2, "bf16 matmul")
    assert file.getvalue() == ""


def test_progress_names_the_phase_and_leaves_nothing():
    file = io.StringIO()
    with progress_line("measuring the machine", Console(file=file, force_terminal=True, width=80)) as progress:
        progress(3, 12, "bf16 matmul")
    assert "measuring the machine 3/12: bf16 matmul" in file.getvalue()
    assert file.getvalue().endswith("\x1b[2K")
