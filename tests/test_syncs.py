"""Which wait is whose, from calls made by hand; and which lines wait, with torch's warnings made by hand."""

import inspect
import math
import sys
import warnings
from contextlib import suppress

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gobrrr import Workload
from gobrrr.timing.syncs import Awaited, SyncLine, located, sync_lines
from gobrrr.timing.timeline import Span, SpanKind

STREAM, DEVICE, EVENT = Awaited.STREAM, Awaited.DEVICE, Awaited.EVENT
WARNING = "called a synchronizing CUDA operation (Triggered internally at CUDAFunctions.cpp:168.)"
NOTICE = "Synchronization debug mode is a prototype feature and does not yet detect all synchronizing operations"


def wait(name: str = "cudaStreamSynchronize", seconds: float = 1.0) -> Span:
    return Span(SpanKind.RUNTIME, name, 1, 0.0, seconds)


def sources(waits, lines) -> list[str | None]:
    return [sync.source for sync in located(waits, lines)]


# Which wait is whose


def test_each_wait_has_its_line_by_the_order_of_both():
    found = located([wait(seconds=1), wait(seconds=2)], [SyncLine(STREAM, "a.py:1"), SyncLine(STREAM, "a.py:2")])
    assert [(sync.call, sync.seconds, sync.source) for sync in found] == [
        ("cudaStreamSynchronize", 1, "a.py:1"),
        ("cudaStreamSynchronize", 2, "a.py:2"),
    ]


def test_kinds_of_waits_are_told_apart_whatever_their_order():
    """A wait before a step's first launch is seen last."""
    waits = [wait(), wait("cudaDeviceSynchronize"), wait("cudaEventSynchronize")]
    lines = [SyncLine(EVENT, "a.py:1"), SyncLine(STREAM, "a.py:2"), SyncLine(DEVICE, "a.py:3")]
    assert sources(waits, lines) == ["a.py:2", "a.py:3", "a.py:1"]


def test_a_call_that_waits_several_times_keeps_its_line():
    assert sources([wait()] * 4, [SyncLine(STREAM, "a.py:1"), SyncLine(STREAM, "a.py:2")]) == [
        *["a.py:1"] * 2,
        *["a.py:2"] * 2,
    ]


@pytest.mark.parametrize("waits", [1, 2, 5])
def test_where_the_numbers_do_not_agree_it_is_one_of_the_lines(waits):
    lines = [SyncLine(STREAM, line) for line in ("a.py:1", "a.py:2", "a.py:1")]
    assert set(sources([wait()] * waits, lines)) == {"a.py:1 or a.py:2"}


def test_a_line_that_waits_more_often_than_was_seen_is_still_the_only_one():
    assert sources([wait()], [SyncLine(STREAM, "a.py:1")] * 3) == ["a.py:1"]


def test_a_wait_that_nobody_asked_for_has_no_line():
    assert sources([wait(), wait("cudaDeviceSynchronize")], [SyncLine(DEVICE, "a.py:1")]) == [None, "a.py:1"]


def test_a_copy_that_waits_on_rocm_is_a_wait_for_a_stream():
    assert sources([wait("hipMemcpyWithStream")], [SyncLine(STREAM, "a.py:1")]) == ["a.py:1"]


@given(
    st.lists(st.builds(wait, st.sampled_from([f"cuda{kind}" for kind in Awaited]), st.floats(0, 9)), max_size=8),
    st.lists(st.builds(SyncLine, st.sampled_from(Awaited), st.sampled_from(["a.py:1", "a.py:2"])), max_size=8),
)
def test_every_wait_is_kept_with_its_seconds_and_has_a_line_if_its_kind_has_any(waits, lines):
    found = located(waits, lines)
    assert [(sync.call, sync.seconds) for sync in found] == [(one.name, one.seconds) for one in waits]
    assert math.fsum(sync.seconds for sync in found) == pytest.approx(math.fsum(one.seconds for one in waits))
    kinds = {one.awaited for one in lines}
    assert all((sync.source is not None) == any(kind in sync.call for kind in kinds) for sync in found)


# Which lines wait


@pytest.fixture(autouse=True)
def modes(monkeypatch) -> list:
    """What torch's mode was set to. Switching it on warns, once in a process."""
    given = []

    def switch(mode) -> None:
        given.append(mode)
        warnings.warn(NOTICE, stacklevel=1)

    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", switch)
    return given


def here() -> int:
    return inspect.currentframe().f_back.f_lineno


def test_a_warning_is_a_wait_and_the_notice_about_the_mode_is_none(modes):
    def step() -> None:
        nonlocal line
        warnings.warn(WARNING, stacklevel=1)
        line = here() - 1

    line = 0
    assert [(one.awaited, one.line) for one in sync_lines(step)] == [(STREAM, f"tests/test_syncs.py:{line}")]
    assert modes == ["warn", 0]


def test_the_same_line_waits_as_often_as_it_is_run():
    def step() -> None:
        for _ in range(3):
            warnings.warn(WARNING, stacklevel=1)

    with warnings.catch_warnings():
        warnings.simplefilter("once")
        assert len(sync_lines(step)) == 3


def test_other_warnings_are_no_waits_and_the_users_own_filters_are_back_afterwards():
    filters, shown = list(warnings.filters), warnings.showwarning
    with pytest.warns(UserWarning, match="beware"):
        assert sync_lines(lambda: warnings.warn("beware", stacklevel=1)) == ()
    assert warnings.filters == filters
    assert warnings.showwarning is shown


def test_waits_that_torch_does_not_warn_about_are_seen_where_they_are_called():
    event = torch.Event()

    def step() -> None:
        event.synchronize()
        warnings.warn(WARNING, stacklevel=1)
        with suppress(RuntimeError):  # where there is no accelerator; the call is made all the same
            torch._C._accelerator_synchronizeDevice(0)

    found = sync_lines(step)
    assert [one.awaited for one in found] == [EVENT, STREAM, DEVICE]
    first, second, third = (int(one.line.rpartition(":")[2]) for one in found)
    assert (second - first, third - first) == (1, 3)


def test_a_wait_within_a_method_of_the_same_name_is_seen_once():
    """As torch.cuda.Event's, which only calls what it is made of."""

    class Wrapped(torch.Event):
        def synchronize(self) -> None:
            super().synchronize()

    assert [one.awaited for one in sync_lines(Wrapped().synchronize)] == [EVENT]


def test_looking_does_not_make_compiled_code_compile_again():
    frames = torch._dynamo.utils.counters["frames"]
    x = torch.ones(3)
    compiled = torch.compile(lambda x: x.cos() + 1, backend="eager")
    compiled(x)
    before = dict(frames)
    sync_lines(lambda: compiled(x))
    assert dict(frames) == before


def test_the_hook_of_another_profiler_is_back_afterwards():
    def other(*_) -> None:
        """Somebody else's."""

    sys.setprofile(other)
    try:
        sync_lines(lambda: None)
        assert sys.getprofile() is other
    finally:
        sys.setprofile(None)


def test_a_step_that_raises_leaves_everything_as_it_was(modes):
    before = sys.getprofile()
    with pytest.raises(ZeroDivisionError):
        sync_lines(lambda: 1 / 0)
    assert sys.getprofile() is before
    assert modes == ["warn", 0]


@pytest.mark.parametrize(
    ("filename", "line"),
    [(__file__, "tests/test_syncs.py:1"), (torch.nn.__file__, "torch/nn/__init__.py:1")],
    ids=["the user's", "torch's, where no other is"],
)
def test_of_a_workloads_step_the_users_line_is_named_or_else_torchs(filename, line):
    event = torch.Event()
    code = compile("def hook(*_): event.synchronize()", filename, "exec")
    exec(code, space := {"event": event})  # noqa: S102 (a function of whichever file)
    model = torch.nn.Linear(2, 1)
    model.register_forward_hook(space["hook"])
    (found,) = sync_lines(Workload(model, torch.ones(1, 2)).step)
    assert found.line == line
