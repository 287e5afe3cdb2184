from dataclasses import replace

import pytest

from gobrrr import schema
from gobrrr.machine import cache
from gobrrr.machine import measure as measure_module
from gobrrr.machine.ceilings import Ceilings
from gobrrr.machine.identity import Machine
from gobrrr.machine.measure import measured

MACHINE = Machine(name="a CPU", kind="cpu", threads=2, torch="2.13", host="a CPU")


def ceilings(**values) -> Ceilings:
    return Ceilings(
        device="a CPU",
        kind="cpu",
        threads=2,
        measured_at="2026-11-15T03:00:00+00:00",
        fingerprint=MACHINE.fingerprint,
        **values,
    )


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "gobrrr"


def test_what_was_kept_comes_back(folder):
    said: list[str] = []
    kept = ceilings(dram_bytes_per_s=2e10, probed={"dram": "then"})
    cache.store(kept, said.append)
    assert [path.parent for path in folder.iterdir()] == [folder]
    assert cache.load(MACHINE, said.append) == kept
    assert said == []


def test_nothing_kept_is_nothing_said():
    said: list[str] = []
    assert cache.load(MACHINE, said.append) is None
    assert said == []


def test_another_number_of_threads_has_a_file_of_its_own():
    cache.store(ceilings(), pytest.fail)
    assert cache.load(replace(MACHINE, threads=4), pytest.fail) is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"[]", b'{"schema_version": 99}', b'{"schema_version": 1}']
)
def test_a_corrupt_file_is_said_in_one_sentence_and_not_used(folder, content):
    said: list[str] = []
    folder.mkdir()
    cache.path_of(MACHINE.fingerprint).write_bytes(content)
    assert cache.load(MACHINE, said.append) is None
    assert len(said) == 1
    assert said[0].endswith("measuring again")


def test_another_machines_file_is_not_ours(folder):
    said: list[str] = []
    schema.write(replace(ceilings(), fingerprint="other"), cache.path_of(MACHINE.fingerprint))
    assert cache.load(MACHINE, said.append) is None
    assert len(said) == 1


def test_where_nothing_can_be_written_it_is_measured_but_not_kept(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    said: list[str] = []
    cache.store(ceilings(), said.append)
    assert len(said) == 1
    assert said[0].startswith("measured, but not kept")


def test_without_xdg_it_is_in_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for unset in ("", "not/absolute"):
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert cache.folder() == tmp_path / ".cache" / "gobrrr"


def test_a_user_without_a_home_still_gets_a_measurement(monkeypatch):
    def homeless():
        raise RuntimeError

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(cache.Path, "home", homeless)
    said: list[str] = []
    assert cache.load(MACHINE, said.append) is None
    cache.store(ceilings(), said.append)
    assert said == ["measured, but not kept: this user has no home folder, and XDG_CACHE_HOME is not set"]


@pytest.fixture
def patience() -> list[float]:
    """Seconds within which each call would run a noisy probe again."""
    return []


@pytest.fixture
def probed(monkeypatch, patience):
    """`measured` on a pretended machine, with the names of the probes that each call ran."""
    runs: list[list[str]] = []

    def fake(machine, names, *, known=None, progress=None, effort=None):
        runs.append(list(names))
        patience.append(effort.retry_until_s)
        return ceilings(probed=dict.fromkeys(names, "now"), dispatch_s=float(len(runs)))

    monkeypatch.setattr(measure_module, "identify", lambda _device: MACHINE)
    monkeypatch.setattr(measure_module, "measure", fake)
    return runs


def test_whoever_asks_for_some_probes_waits_less_than_whoever_asks_for_all(probed, patience):
    measured(only=["dram"])
    measured()
    some, everything = patience
    assert some < everything


def test_the_second_time_nothing_is_measured(probed):
    first, second = measured(only=["dram", "dispatch"]), measured(only=["dispatch"])
    assert probed == [["dram", "dispatch"]]
    assert first == second


def test_only_what_is_missing_is_measured(probed):
    measured(only=["dram"])
    merged = measured(only=["dram", "dispatch"])
    assert probed == [["dram"], ["dispatch"]]
    assert merged.probed.keys() == {"dram", "dispatch"}


def test_fresh_measures_again(probed):
    measured(only=["dram"])
    assert measured(only=["dram"], fresh=True).dispatch_s == 2.0
    assert probed == [["dram"], ["dram"]]


def test_fresh_keeps_what_it_was_not_asked_to_measure(probed):
    measured(only=["dram"])
    assert measured(only=["cache"], fresh=True).probed.keys() == {"dram", "cache"}


def test_a_probe_that_gave_nothing_is_not_tried_every_time(probed):
    cache.store(ceilings(probed={"matmul.fp8": "then"}, unmeasured={"matmul.fp8": "a CPU"}), pytest.fail)
    measured(only=["matmul.fp8"])
    assert probed == []
