"""An Exam on disk, and the made-up ones that other tests diagnose."""

import gzip
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zoo
from counting import programmed
from gobrrr import schema
from gobrrr.bounds import MOST_ELEMENTS, MOST_S
from gobrrr.errors import BadInput
from gobrrr.exam import Exam, Quality
from gobrrr.stats import Interval
from gobrrr.timing.kernel import Kernel, KernelKind, Sync
from gobrrr.work.op import CountedBy, Op, TensorRef
from gobrrr.work.program import Program
from test_floors import CPU
from test_residency import Tape


def kernel(start_s: float = 0.0, seconds: float = 1.0, **changes) -> Kernel:
    """A compute kernel that nobody linked, unless told otherwise."""
    plain = Kernel(
        name="kernel",
        start_s=start_s,
        seconds=seconds,
        kind=KernelKind.COMPUTE,
        stream=7,
        launched_s=None,
        fused_from=None,
    )
    return replace(plain, **changes)


def doing(index: int, op: Op, start_s: float, seconds: float, **changes) -> Kernel:
    """The kernel of one op of a program."""
    return kernel(start_s, seconds, **{"name": op.name, "fused_from": (index,), "op": index, **changes})


def in_modules(*by_module: tuple[str, float]) -> Exam:
    """A kernel of unknown work for each module, so long, one after the other."""
    nothing = replace(small_program().ops[0], work=None, counted_by=CountedBy.UNKNOWN)
    starts = [sum(seconds for _, seconds in by_module[:place]) for place in range(len(by_module))]
    return exam(
        *(kernel(at, seconds, op=i) for i, (at, (_, seconds)) in enumerate(zip(starts, by_module, strict=True))),
        dispatched=tuple(replace(nothing, module=module) for module, _ in by_module),
        step_s=1e6,
    )


def exam(*kernels: Kernel, step_s: float = 10.0, program: Program | None = None, **changes) -> Exam:
    """A GPU's, unless told otherwise: host and device side by side."""
    plain = Exam(
        target="made.py:up",
        made_at="2026-11-15T00:00:00+00:00",
        device="cuda:0",
        serial=False,
        ceilings=CPU,
        ceilings_from="measured",
        window_step_s=(step_s,) * 3,
        steps=30,
        step_s_method="windows",
        step_profiled_s=None,
        host_s=None,
        kernels=kernels,
        program=program,
        syncs=None,
        peak_memory_bytes=None,
        gpu_util_percent=None,
        quality=Quality(linked_share=None, steady=True, growing=False),
    )
    return replace(plain, **changes)


def small_program() -> Program:
    tape = Tape()
    tape.pointwise(tape.product(tape.tensor(8, 16), tape.tensor(16, 4)), name="relu")
    return tape.program


def full_exam(program: Program) -> Exam:
    return exam(
        *(doing(i, op, i, 0.5, launched_s=i / 2) for i, op in enumerate(program.ops)),
        kernel(99.0, 0.25, kind=KernelKind.TRANSFER),
        program=program,
        window_step_s=(0.1, 0.3, 0.2),
        step_profiled_s=0.4,
        host_s=0.15,
        syncs=(Sync("cudaStreamSynchronize", 1e-5, "a.py:4"),),
        peak_memory_bytes=1 << 40,
        gpu_util_percent=97.5,
        gpu_clock_hz=1.98e9,
        gpu_power_w=612.0,
        gpu_memory_bytes=float(1 << 34),
        gap_before_s=2e-6,
        idle={"python": 0.25, "sync": 0.75},
        quality=Quality(linked_share=0.75, steady=False, growing=True, warnings=("it grows",)),
    )


def stored(document: Exam, path) -> Exam:
    schema.write(document, path)
    return schema.read(Exam, path)


def refused(path) -> str:
    with pytest.raises(BadInput) as caught:
        schema.read(Exam, path)
    return str(caught.value)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "exam.json.gz"


def test_an_exam_survives_the_disk_with_program_and_work(file):
    whole = full_exam(small_program())
    back = stored(whole, file)
    assert back == whole
    assert isinstance(back.program.ops[0].inputs[0], TensorRef)
    assert back.program.ops[0].inputs[0].unique_bytes == 8 * 16 * 4
    assert back.kernels[-1].kind is KernelKind.TRANSFER


def test_the_exam_of_a_counted_model_survives_too(file):
    """All that the counter writes: integers where floats are annotated, keys of every mapping, sources of lines."""
    whole = full_exam(programmed(zoo.lstm().step))
    assert stored(whole, file) == whole


def test_an_exam_of_almost_nothing_survives(file):
    assert stored(exam(), file) == exam()


FINITE = st.floats(-MOST_S, MOST_S)
REFS = st.builds(
    lambda storage, offset, dims, dtype: TensorRef(storage, offset, *zip(*dims, strict=True), dtype),
    st.none() | st.integers(),
    st.integers(0, MOST_ELEMENTS),
    st.lists(st.tuples(st.integers(0, 9), st.integers(-9, 9)), min_size=1, max_size=4),
    st.sampled_from(["fp32", "bf16", "int64"]),
)


@settings(max_examples=30)
@given(st.lists(REFS, max_size=3), FINITE, st.none() | FINITE, st.sampled_from([None, "a.py:3", "µ.py", "\udcff.py:1"]))
def test_every_operand_and_time_comes_back_as_it_was(refs, start_s, launched_s, source):
    op = replace(small_program().ops[0], inputs=tuple(refs), source=source)
    one = exam(kernel(start_s, launched_s=launched_s, op=0), dispatched=(op,))
    assert schema.from_document(Exam, json.loads(schema.dumps(one))) == one


def test_a_kernel_of_the_first_exams_is_of_the_one_op_it_is_from(file):
    """They had no dispatched ops, and each kernel repeated what its op says."""
    changed(file, lambda data: (data.pop("dispatched"), [one.pop("op") for one in data["kernels"]]))
    old = schema.read(Exam, file)
    assert [old.index(one) for one in old.kernels] == [0, 1, None]


def changed(file, change) -> None:
    """The Exam in the file after `change` was done to its data."""
    data = schema.document_data(full_exam(small_program()))
    change(data)
    file.write_bytes(gzip.compress(json.dumps(data).encode()))


def test_an_exam_whose_kernels_do_ops_that_are_not_there_is_refused(file):
    changed(file, lambda data: data["kernels"][0].update(fused_from=[99]))
    assert "an op that a kernel does is not from 0 to 1" in refused(file)


def test_a_newer_exam_is_refused(file):
    changed(file, lambda data: data.update(schema_version=Exam.VERSION + 1))
    assert "is newer than" in refused(file)


@pytest.mark.parametrize(
    "operand",
    [None, {}, [], [1, 0, [2]], [1, 0, [2], [1], "fp32", "more"], [1, 0, [2.5], [1], "fp32"], [1, 0, 2, 1, 3]],
)
def test_an_operand_that_is_none_is_refused_with_its_place(file, operand):
    changed(file, lambda data: data["program"]["ops"][1]["inputs"].__setitem__(0, operand))
    assert "exam.program.ops[1].inputs[0]" in refused(file)


@pytest.mark.parametrize("key", ["kernels", "window_step_s", "ceilings", "quality"])
def test_an_exam_without_its_substance_is_refused(file, key):
    changed(file, lambda data: data.pop(key))
    assert f"lacks '{key}'" in refused(file)


@pytest.mark.parametrize("damage", [lambda raw: raw[:-20], lambda raw: b"{" + raw, lambda _: b""])
def test_a_corrupt_file_is_refused(file, damage):
    schema.write(full_exam(small_program()), file)
    file.write_bytes(damage(file.read_bytes()))
    assert str(file) in refused(file)


def test_the_step_time_is_the_median_of_the_windows_and_lies_in_its_interval():
    timed = exam(window_step_s=(3.0, 1.0, 2.0, 9.0, 2.5))
    assert timed.step_s == 2.5
    assert timed.step_s in timed.step_interval
    assert exam().step_interval == Interval(10.0, 10.0)


def test_an_exam_from_before_idle_time_was_named_still_reads():
    data = json.loads(schema.dumps(exam(kernel())))
    for key in ("idle", "gap_before_s", "gpu_clock_hz", "gpu_power_w", "gpu_memory_bytes"):
        del data[key]
    assert schema.from_document(Exam, data) == exam(kernel())
