"""Ceilings of a machine that is not this one, or may be: for traces that somebody recorded somewhere."""

from collections.abc import Mapping
from pathlib import Path

from gobrrr import schema
from gobrrr.errors import BadInput, Missing
from gobrrr.machine import cache, datasheets
from gobrrr.machine.ceilings import Ceilings
from gobrrr.machine.datasheets import Datasheet

MATRIX, VECTOR, MEMORY = 0.8, 0.95, 0.9
"""Of a datasheet's rates, what an H200 was measured to do: 76 to 89 % of the matrix rates (int8 less), 91 to 96 % of
the vector rates, 92 % of the bandwidth. Other machines are taken to be alike, and the report says so."""


def ceilings_of(device: str | None, file: Path | None = None) -> tuple[Ceilings, str]:
    """Those of the named device, and where they are from: a given file, this machine's cache, the datasheet."""
    if file is not None:
        return schema.read(Ceilings, file), f"{file.name}"
    if device is None:
        return _unknown("unknown device"), "unknown"
    measured = _cached(device)
    if measured is not None:
        return measured, "measured"
    sheet = datasheets.find(device)
    if sheet is None:
        return _unknown(device), "unknown"
    return _derated(device, sheet), f"datasheet, matrix × {MATRIX:g}, vector × {VECTOR:g}, memory × {MEMORY:g}"


def _cached(device: str) -> Ceilings | None:
    """The newest measurement of such a device that is kept on this machine."""
    try:
        files = list(cache.folder().glob("machine-*.json"))
    except Missing:
        return None
    found = [ceilings for file in files if (ceilings := _read(file)) is not None and ceilings.device == device]
    return max(found, key=lambda ceilings: ceilings.measured_at, default=None)


def _read(file: Path) -> Ceilings | None:
    try:
        return schema.read(Ceilings, file)
    except BadInput:
        return None


def _derated(device: str, sheet: Datasheet) -> Ceilings:
    return Ceilings(
        device=device,
        kind="cuda",
        threads=0,
        measured_at=f"{sheet.year}-01-01T00:00:00+00:00",
        matmul_flops_per_s=_times(sheet.matmul_flops_per_s, MATRIX),
        vector_flops_per_s=_times(sheet.vector_flops_per_s, VECTOR),
        dram_bytes_per_s=sheet.dram_bytes_per_s * MEMORY,
        architecture=sheet.architecture,
        memory_bytes=sheet.memory_bytes,
        multiprocessors=sheet.multiprocessors,
    )


def _unknown(device: str) -> Ceilings:
    return Ceilings(device=device, kind="unknown", threads=0, measured_at="1970-01-01T00:00:00+00:00")


def _times(rates: Mapping[str, float], share: float) -> dict[str, float]:
    return {name: rate * share for name, rate in rates.items()}
