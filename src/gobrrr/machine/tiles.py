"""Tiles (AMX): units of a CPU that multiply bf16, announced by some virtual machines where they do not work.

There the hypervisor hides how large a tile is. Whoever believes the announcement, as torch's oneDNN does, dies of an
illegal instruction at the first product that is worth a tile: an end of the process, and nothing to catch.
"""

import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")

WITHOUT = ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
"""What has to stand in the environment before torch multiplies, for bf16 products without tiles."""

PRODUCT = (sys.executable, "-c", "import torch; x = torch.ones(256, 256, dtype=torch.bfloat16); x @ x")

LONGEST_S = 60.0


@cache
def are_broken() -> bool:
    """Tried in a process of its own, and only where they are announced."""
    return _announced(CPUINFO) and _dies(PRODUCT)


def _announced(cpuinfo: Path) -> bool:
    try:
        return "amx_tile" in cpuinfo.read_text()
    except OSError:
        return False


def _dies(command: Sequence[str]) -> bool:
    """By a signal. An error is none: then torch is missing, or says what it cannot do."""
    try:
        return subprocess.run(command, capture_output=True, timeout=LONGEST_S, check=False).returncode < 0  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False
