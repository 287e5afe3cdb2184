from dataclasses import replace

import pytest
import torch

from gobrrr.errors import Missing, UsageError
from gobrrr.machine import cpu_state, identity
from gobrrr.machine.identity import Machine, identify

CPU = Machine(name="a CPU", kind="cpu", threads=2, torch="2.13", host="a CPU", architecture="AVX2")
GPU = Machine(name="NVIDIA H200", kind="cuda", threads=16, torch="2.11", host="a CPU", driver="580.65")


def test_this_machine_knows_itself():
    machine = identify("cpu")
    assert machine.name
    assert machine.threads == torch.get_num_threads()
    assert machine.torch == torch.__version__
    assert machine.device == "cpu"


def test_without_a_name_it_is_the_accelerator_or_else_the_cpu():
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    assert identify().kind == ("cpu" if accelerator is None else accelerator.type)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there_is_missing():
    with pytest.raises(Missing, match="no cuda device"):
        identify("cuda")


def test_a_word_that_is_no_device_is_a_mistake():
    with pytest.raises(UsageError, match="abacus"):
        identify("abacus")


def test_a_cpu_with_other_threads_is_another_machine():
    assert CPU.fingerprint != replace(CPU, threads=4).fingerprint


def test_a_gpu_stays_itself_whatever_the_host_threads_and_its_number():
    assert GPU.fingerprint == replace(GPU, threads=4, index=3).fingerprint
    assert replace(GPU, index=3).device == "cuda:3"


@pytest.mark.parametrize("change", [{"driver": "590.1"}, {"torch": "2.13"}, {"name": "NVIDIA H100"}, {"host": "other"}])
def test_whatever_a_rate_depends_on_changes_the_fingerprint(change):
    assert GPU.fingerprint != replace(GPU, **change).fingerprint


def test_measuring_in_another_way_invalidates_what_was_kept(monkeypatch):
    before = CPU.fingerprint
    monkeypatch.setattr(identity, "METHOD", identity.METHOD + 1)
    assert CPU.fingerprint != before


@pytest.fixture
def sysfs(tmp_path, monkeypatch):
    """Two chiplets of two cores: a 32 MiB cache each, and instruction caches that must not count."""
    for cpu in range(4):
        for index, (level, kind, size, shared) in enumerate(
            [
                (1, "Instruction", "9999K", f"{cpu}"),
                (2, "Unified", "1024K", f"{cpu}"),
                (3, "Unified", "32M", f"{cpu // 2}"),
            ]
        ):
            folder = tmp_path / f"cpu{cpu}/cache/index{index}"
            folder.mkdir(parents=True)
            for name, text in {"level": level, "type": kind, "size": size, "shared_cpu_list": shared}.items():
                (folder / name).write_text(f"{text}\n")
        topology = tmp_path / f"cpu{cpu}/topology"
        topology.mkdir()
        (topology / "thread_siblings_list").write_text(f"{cpu % 2},{cpu % 2 + 2}\n")
    monkeypatch.setattr(cpu_state, "_CPUS", tmp_path)


def test_last_level_caches_of_several_chiplets_add(sysfs):
    assert cpu_state.last_level_cache_bytes(range(4), threads=4) == 64 << 20


def test_one_thread_fills_one_cache(sysfs):
    assert cpu_state.last_level_cache_bytes(range(4), threads=1) == 32 << 20


def test_an_unknown_cache_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(cpu_state, "_CPUS", tmp_path)
    assert cpu_state.last_level_cache_bytes(range(4), threads=4) is None


def test_two_hyper_threads_are_one_core(sysfs):
    assert cpu_state.physical_cores(range(4)) == 2


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_quota_of_either_version_of_control_groups(tmp_path, monkeypatch, files, expected):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(cpu_state, "_CGROUP", tmp_path)
    assert cpu_state.cpu_state(2).quota_cores == expected


def test_free_memory_is_what_the_control_group_leaves(tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text("1000000")
    (tmp_path / "memory.current").write_text("400000")
    monkeypatch.setattr(cpu_state, "_CGROUP", tmp_path)
    assert cpu_state.free_host_bytes() == 600000


def test_busy_time_counts_only_our_cores_and_not_their_idleness(tmp_path, monkeypatch):
    stat = "cpu 9 9 9 9 9 9 9 9 9 9\ncpu0 100 0 50 999 5 10 40 7 0 0\ncpu1 1000 0 0 0 0 0 0 0 0 0\nintr 5\n"
    (tmp_path / "stat").write_text(stat)
    monkeypatch.setattr(cpu_state, "_PROC_STAT", tmp_path / "stat")
    monkeypatch.setattr(cpu_state, "usable_cpus", lambda: frozenset({0}))
    monkeypatch.setattr(cpu_state.os, "sysconf", lambda _name: 100)
    state = cpu_state.cpu_state(1)
    assert state.busy_s == 2.0
    assert state.stolen_s == 0.07
