"""Tiles that are announced and do not work: seen before the process dies of them."""

import subprocess
import sys

import pytest

from gobrrr.machine import tiles
from gobrrr.machine.bench import Bench, Unmeasurable
from gobrrr.machine.probes.matmul import matmul
from test_machine_probes import MACHINE, TINY

DIES = (sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
FAILS = (sys.executable, "-c", "raise RuntimeError")


def test_a_process_that_dies_is_told_from_one_that_fails_or_does_not_exist():
    assert tiles._dies(DIES)
    assert not tiles._dies(FAILS)
    assert not tiles._dies(("/nowhere/python",))


@pytest.mark.parametrize(("flags", "announced"), [("flags : fpu amx_tile amx_bf16", True), ("flags : fpu avx2", False)])
def test_tiles_are_announced_among_the_flags(tmp_path, flags, announced):
    path = tmp_path / "cpuinfo"
    path.write_text(flags)
    assert tiles._announced(path) == announced
    assert not tiles._announced(tmp_path / "missing")


def test_a_product_without_tiles_does_not_die():
    name, value = tiles.WITHOUT
    assert subprocess.run(tiles.PRODUCT, env={name: value}, check=False).returncode == 0


def test_a_cpu_whose_tiles_are_broken_has_no_rate_for_bf16(monkeypatch):
    monkeypatch.setattr(tiles, "are_broken", lambda: True)
    with pytest.raises(Unmeasurable, match="ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16"):
        matmul(Bench(MACHINE, TINY), "bf16")
