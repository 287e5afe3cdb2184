"""From timelines and the program to kernels: a CUDA-like recording made by hand, and CPU recordings."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gobrrr.timing.kernel import Kernel, KernelKind
from gobrrr.timing.kernels import device_kernels, host_kernels
from gobrrr.timing.timeline import Timeline, timeline
from gobrrr.work.lineage import Dispatched, as_written
from gobrrr.work.op import Op, OpClass
from gobrrr.work.program import Program
from test_residency import Tape
from test_timeline import event

US = 1e-6


def network() -> Program:
    """A view that starts nothing, a product, an activation."""
    tape = Tape()
    x, weight = tape.tensor(8, 16), tape.tensor(16, 4)
    tape.op("t", OpClass.OTHER, [weight], [weight], launches=False)
    tape.pointwise(tape.product(x, weight), name="relu")
    return tape.program


PROGRAM = network().ops
PRODUCT, RELU = PROGRAM[1], PROGRAM[2]


class Recording:
    """A profiler's file, written call by call: the host asks, and the device follows on its own clock."""

    def __init__(self, correlation: int = 100, began: float = 1000.0) -> None:
        self.events: list[dict] = []
        self._correlation = correlation
        self._host = self._device = began
        self._ops = 0

    def op(self, name: str, *kernels: tuple[str, float], **args) -> "Recording":
        """An op that launches these kernels, each so many microseconds long."""
        self._ops += 1
        start = self._host
        for kernel, length in kernels:
            self.launch(kernel, length, number=self._ops)
        self._host += 2
        self.events.append(event("cpu_op", name, start, self._host - start, **{"External id": self._ops}, **args))
        return self

    def launch(self, name: str, length: float, *, number: int | None = None, cat: str = "kernel") -> "Recording":
        """A call of 3 us in an op of that number or in none, and 5 us later, when the device is free, its kernel."""
        self._correlation += 1
        around = {} if number is None else {"External id": number}
        self.events.append(
            event("cuda_runtime", "cudaLaunchKernel", self._host, 3, correlation=self._correlation, **around)
        )
        self._host += 3
        self._device = max(self._device, self._host + 5)
        self.events.append(event(cat, name, self._device, length, stream=7, correlation=self._correlation))
        self._device += length
        return self

    @property
    def timeline(self) -> Timeline:
        return timeline(self.events)


def recorded(
    product: Sequence[tuple[str, float]] = (("gemm", 20),), relu: float = 10, steps: int = 1, **made
) -> Timeline:
    recording = Recording(**made)
    for _ in range(steps):
        recording.op("aten::mm", *product).op("aten::relu", ("pointwise", relu))
    return recording.timeline


def unlinked(recording: Timeline) -> Timeline:
    """The same as the profiler gives it without ops."""
    return replace(recording, ops=(), runtime=tuple(call._replace(op=None) for call in recording.runtime))


def summary(kernels: Sequence[Kernel]) -> list[tuple]:
    return [(kernel.name, kernel.fused_from, round(kernel.seconds / US, 6)) for kernel in kernels]


# On a device


def test_kernels_are_linked_to_the_program_by_the_call_and_the_op_that_launched_them():
    linked = recorded()
    product, relu = device_kernels(as_written(PROGRAM), linked, unlinked(recorded(steps=3)), 3)
    assert summary([product, relu]) == [("gemm", (1,), 20), ("pointwise", (2,), 10)]
    assert [(kernel.op, kernel.kind) for kernel in (product, relu)] == [(i, KernelKind.COMPUTE) for i in (1, 2)]


def test_an_op_may_launch_several_kernels():
    linked = recorded([("gemm", 30), ("splitk_reduce", 10)])
    first, second, _ = device_kernels(as_written(PROGRAM), linked, unlinked(recorded()), 3)
    assert first.fused_from == second.fused_from == (1,)


def test_a_kernel_that_does_several_ops_is_linked_to_all_of_them():
    fused = Dispatched((replace(RELU, name="triton_poi_fused_mm_relu_0"),), ((1, 2),))
    recording = Recording().op("triton_poi_fused_mm_relu_0", ("triton_poi_fused_mm_relu_0", 8)).timeline
    (kernel,) = device_kernels(fused, recording, Timeline(), 3)
    assert (kernel.op, kernel.fused_from) == (0, (1, 2))


def graph(*kernels: tuple[str, float], steps: int = 3) -> Timeline:
    """Steps of one call that launches all of these."""
    recording, device = Recording(), 0.0
    for step in range(steps):
        recording.events.append(event("cuda_runtime", "cudaGraphLaunch", 1000.0 * step, 5, correlation=step + 1))
        device = 1000.0 * step + 10
        for name, length in kernels:
            recording.events.append(event("kernel", name, device, length, stream=7, correlation=step + 1))
            device += length + 1
    return recording.timeline


def test_kernels_of_a_graph_are_those_of_the_same_name_and_order_in_its_warm_up():
    timed = graph(("copy of an input", 2), ("gemm", 18), ("pointwise", 9))
    kernels = device_kernels(as_written(PROGRAM), recorded(), timed, 3)
    assert summary(kernels) == [("copy of an input", None, 2), ("gemm", (1,), 18), ("pointwise", (2,), 9)]
    assert len({kernel.launched_s for kernel in kernels}) == 1


def test_a_kernel_inside_an_inner_op_belongs_to_the_op_of_the_program():
    events = [
        event("cpu_op", "aten::mm", 0, 20, **{"External id": 1}),
        event("cpu_op", "aten::resolve_conj", 1, 18, **{"External id": 2}),
        event("cuda_runtime", "cudaLaunchKernel", 5, 3, correlation=9, **{"External id": 2}),
        event("kernel", "gemm", 15, 4, stream=7, correlation=9),
    ]
    (kernel,) = device_kernels(as_written(PROGRAM), timeline(events), Timeline(), 3)
    assert kernel.fused_from == (1,)


def test_what_cannot_be_linked_stays_with_unknown_work():
    recording = Recording().op("aten::mm", ("gemm", 20)).launch("stray", 7).op("mylib::trick", ("trick", 5))
    kernels = device_kernels(as_written(PROGRAM), recording.timeline, Timeline(), 3)
    assert summary(kernels) == [("gemm", (1,), 20), ("stray", None, 7), ("trick", None, 5)]
    assert [stray.op for stray in kernels[1:]] == [None, None]


def test_a_kernel_and_a_call_without_a_number_are_not_each_others():
    events = [
        event("cpu_op", "aten::mm", 0, 20, **{"External id": 1}),
        event("cuda_runtime", "cudaGetDevice", 5, 3, **{"External id": 1}),
        event("kernel", "in a graph", 15, 4, stream=7),
    ]
    (kernel,) = device_kernels(as_written(PROGRAM), timeline(events), Timeline(), 3)
    assert kernel.fused_from is None
    assert kernel.launched_s is None


def test_times_are_those_of_the_middle_step_recorded_without_ops():
    timed = Recording(correlation=900)
    for slower in (1, 2, 4):
        timed.op("aten::mm", ("gemm", 20 * slower)).op("aten::relu", ("pointwise", 10 * slower))
    kernels = device_kernels(as_written(PROGRAM), recorded([("gemm", 77)]), unlinked(timed.timeline), 3)
    assert summary(kernels) == [("gemm", (1,), 40), ("pointwise", (2,), 20)]


@pytest.mark.parametrize(
    "timed",
    [
        recorded(steps=2),
        Timeline(),
    ],
    ids=["fewer steps", "nothing"],
)
def test_times_are_those_recorded_with_ops_where_no_step_can_be_told_from_the_next(timed):
    linked = recorded([("gemm", 77)])
    kernels = device_kernels(as_written(PROGRAM), linked, unlinked(timed), 3)
    assert summary(kernels) == [("gemm", (1,), 77), ("pointwise", (2,), 10)]
    # Their launches too: the first call returns after 3 us, the second 2 + 3 us later, and kernels follow after 5.
    assert [kernel.launched_s / US for kernel in kernels] == pytest.approx([0, 5])
    assert [kernel.start_s / US for kernel in kernels] == pytest.approx([5, 82])


def test_a_step_counts_from_its_first_launch():
    kernels = device_kernels(as_written(PROGRAM), recorded(), unlinked(recorded(steps=3, began=5e6)), 3)
    assert kernels[0].launched_s == 0
    # 10 us of calls a step against 30 of kernels: by the second step the device is 20 behind.
    assert [kernel.launched_s / US for kernel in kernels] == pytest.approx([0, 5])
    assert [kernel.start_s / US for kernel in kernels] == pytest.approx([25, 45])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Memcpy HtoD (Pageable -> Device)", KernelKind.TRANSFER),
        ("Memcpy DtoH (Device -> Pinned)", KernelKind.TRANSFER),
        ("Memcpy DtoD (Device -> Device)", KernelKind.COMPUTE),
    ],
)
def test_only_copies_between_host_and_device_are_transfers(name, kind):
    recording = Recording().launch(name, 4, cat="gpu_memcpy").timeline
    assert [kernel.kind for kernel in device_kernels(as_written(PROGRAM), recording, Timeline(), 3)] == [kind]


def test_kernels_of_a_collective_are_communication():
    tape = Tape()
    x = tape.tensor(4)
    tape.op("all_reduce_", OpClass.COMMUNICATION, [x], [x])
    recording = Recording().op("aten::all_reduce_", ("ncclKernel", 9)).timeline
    assert [k.kind for k in device_kernels(as_written(tape.ops), recording, Timeline(), 3)] == [
        KernelKind.COMMUNICATION
    ]


def test_of_nothing_recorded_there_are_no_kernels():
    assert device_kernels(as_written(PROGRAM), Timeline(), Timeline(), 3) == ()


# On a CPU


def on_cpu(product_us: float, relu_us: float) -> Timeline:
    return timeline(
        [
            event("cpu_op", "aten::matmul", 0, product_us + 1),
            event("cpu_op", "aten::mm", 1, product_us),
            event("cpu_op", "aten::resolve_conj", 2, 1),
            event("cpu_op", "aten::relu", product_us + 10, relu_us),
        ]
    )


def host(
    *recordings: Timeline,
    step_us: float = 100,
    dispatch_us: float = 0,
    profiler_us: float = 0,
    ops: Sequence[Op] = PROGRAM,
):
    return host_kernels(as_written(ops), recordings, step_us * US, dispatch_us * US, profiler_us * US)


def test_an_op_of_a_cpu_is_a_kernel_of_its_own_time():
    kernels = host(on_cpu(50, 20))
    assert summary(kernels) == [(PRODUCT.name, (1,), 50), (RELU.name, (2,), 20)]
    assert [kernel.op for kernel in kernels] == [1, 2]
    assert [kernel.start_s / US for kernel in kernels] == pytest.approx([1, 60])


def test_what_dispatching_and_profiling_each_call_cost_is_not_its_time():
    assert [kernel.seconds / US for kernel in host(on_cpu(50, 20), dispatch_us=3, profiler_us=2)] == pytest.approx(
        [(50 - 1) - (3 + 2), 20 - (3 + 2)]  # the call inside the product, of 1 µs, is nothing else
    )


def test_an_op_that_is_nothing_but_dispatch_takes_no_time():
    assert [kernel.seconds / US for kernel in host(on_cpu(50, 2), dispatch_us=3)] == pytest.approx([46, 0])


def test_an_ops_time_is_the_median_of_the_recordings():
    kernels = host(on_cpu(50, 20), on_cpu(500, 10), on_cpu(60, 15))
    assert [kernel.seconds / US for kernel in kernels] == pytest.approx([60, 15])


@pytest.mark.parametrize(("wall_us", "stretch"), [(50, 2), (100, 1), (200, 1), (None, 1)])
def test_a_step_that_was_recorded_in_less_than_its_time_is_stretched_to_it(wall_us, stretch):
    recording = replace(on_cpu(50, 20), wall_s=wall_us and wall_us * US)
    assert [kernel.seconds / US for kernel in host(recording)] == pytest.approx([50 * stretch, 20 * stretch])


def test_a_matched_op_inside_another_is_counted_once():
    tape = Tape()
    x = tape.tensor(4)
    for name in ("clone", "index_put_"):
        tape.op(name, OpClass.INDEXING, [x], [x])
    events = [event("cpu_op", "aten::index_put_", 0, 30), event("cpu_op", "aten::clone", 5, 10)]
    kernels = host(timeline(events), ops=tape.ops)
    assert [kernel.seconds / US for kernel in kernels] == pytest.approx([10, 20])
