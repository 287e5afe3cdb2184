"""The public tables' rows as (what was measured, what we predict). One function a format, none knows a device."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from csv import DictReader
from dataclasses import dataclass
from math import prod
from pathlib import Path

from gobrrr.diagnose.residency import Traffic
from gobrrr.predict.accelerator import Accelerator
from gobrrr.predict.attention import PAGED_S, Attention, decode, prefill
from gobrrr.predict.conv import Convolution, convolution
from gobrrr.predict.estimate import memory_time, rotating
from gobrrr.predict.kernels import Call, of_call
from gobrrr.predict.product import Product, product, streamed
from gobrrr.predict.spread import Family
from gobrrr.predict.stream import Stream, stream
from gobrrr.work.op import TensorRef
from gobrrr.work.recorded import recorded
from gobrrr.work.recorded_ops import Surroundings, counted_op
from gobrrr.work.registry import canonical

Cells = Mapping[str, str]
Find = Callable[[str], Accelerator | None]

WEIGHT_COPIES = 6
"""That the table of products takes in turn, so that weights come from memory."""

EVENT_S = 16e-6
"""Between two events around an eager call, beyond its kernels."""

EAGER_CALL_S = 28e-6
AGE = 0.16
"""An eager call between two events, on a host of 2020; hosts that are as old as their cards are slower."""

CONVOLUTION_CALL_S = 115e-6
"""The same for a convolution, whose library searches its plans, and which starts several kernels."""

LAUNCH_BOUND_S = 50e-6

SWEPT = "swept"
"""The workload of rows that differ in their items alone."""


@dataclass(frozen=True, slots=True)
class Row:
    tables: tuple[str, ...]
    accelerator: str
    measured_s: float
    predicted_s: float
    family: Family
    workload: str = ""
    """Of rows that are compared with each other: the model's name."""
    spread: float | None = None
    """Of its own, where the row is a whole step."""
    items: int = 1
    """That a step works on, where rows to be compared differ in it."""


def read(path: Path) -> Iterator[Cells]:
    with path.open(newline="", encoding="utf-8") as file:
        yield from DictReader(file)


def products(path: Path, find: Find) -> Iterator[Row]:
    """`F.linear` in a graph. The 8-bit rows quantize their input first: a kernel that reads 2 bytes and writes 1."""
    for cells in read(path):
        device = find(cells["system"])
        if device is None:
            continue
        m, n, k = int(cells["m"]), int(cells["n"]), int(cells["k"])
        is_scaled = cells["dtype"] == "fp8"
        mode, width = ("fp8", 1) if is_scaled else ("bf16", 2)
        shape = Product(m, n, k, mode=mode, quiet=cells["source"].startswith("vllm"))
        operands, result = width * (m * k + n * k), 2 * m * n
        traffic = rotating(operands, result, WEIGHT_COPIES * width * n * k + width * m * k + result, device)
        seconds = product(shape, memory_time(traffic, device, streamed(device)), device).seconds
        if is_scaled:
            seconds += stream(Stream.POINTWISE, Traffic(dram_read=2 * m * k, dram_written=m * k), device).seconds
        family = Family.SCALED_PRODUCT if is_scaled else Family.PRODUCT
        yield Row((f"gemm {mode}",), device.name, float(cells["latency_ms"]) / 1e3, seconds, family)


def attentions(path: Path, find: Find) -> Iterator[Row]:
    for cells in read(path):
        device = find(cells["system"])
        if device is None:
            continue
        is_prefill = cells["kind"] == "context"
        length = int(cells["isl"]) + int(cells["step"])
        shape = Attention(
            batch=int(cells["batch_size"]),
            heads=int(cells["num_heads"]),
            kv_heads=int(cells["num_key_value_heads"]),
            queries=length if is_prefill else 1,
            keys=length,
            head_dim=int(cells["head_dim"]),
            window=int(float(cells["window_size"] or 0)) or None,
            current=True,
        )
        seconds = PAGED_S + (prefill if is_prefill else decode)(shape, device).seconds
        table = "attention prefill" if is_prefill else "attention decode"
        yield Row((table,), device.name, float(cells["latency_ms"]) / 1e3, seconds, Family.ATTENTION)


LLM_STREAMS = {
    "add": (Stream.POINTWISE, 3.0),
    "gelu": (Stream.POINTWISE, 2.0),
    "silu_mul": (Stream.SINGLY, 1.5),
    "rmsnorm": (Stream.ROWWISE, 2.0),
    "layernorm": (Stream.ROWWISE, 2.0),
    "rope_inplace_q_k": (Stream.SINGLY, 2.0),
}
"""Kind to elements moved per element of K."""


def llm_ops(path: Path, find: Find) -> Iterator[Row]:
    for cells in read(path):
        device = find(cells["gpu"])
        if device is None:
            continue
        m, k, n = (int(float(cells[name])) for name in "MKN")
        measured = float(cells["median_ms"]) / 1e3
        if cells["kind"] == "gemm":
            operands, result = 2 * (m * k + n * k), 2 * m * n
            traffic = rotating(operands, result, operands + result, device)
            memory_s = memory_time(traffic, device, streamed(device))
            seconds = product(Product(m, n, k, mode="fp16"), memory_s, device).seconds
            yield Row(("llm_ops", "llm_ops gemm"), device.name, measured, seconds, Family.PRODUCT)
            continue
        if cells["kind"].startswith("embedding"):
            kind, half = Stream.GATHER, 2 * m * n
            read_bytes, written = half, half
        else:
            kind, elements = LLM_STREAMS[cells["kind"]]
            written = 2 * m * k * (elements - 1 if elements < 2 else 1)
            read_bytes = 2 * m * k * elements - written
        traffic = rotating(read_bytes, written, read_bytes + written, device)
        seconds = stream(kind, traffic, device, rows=m).seconds
        yield Row(("llm_ops", "llm_ops streams"), device.name, measured, seconds, kind.family)


def of_its_age(seconds: float, device: Accelerator) -> float:
    return seconds * max(0.7, 1 + AGE * (2020 - device.year))


def between_events(kernel_s: float, family: Family, device: Accelerator) -> tuple[float, Family]:
    """Whichever is slower: the host's call, or the kernel with its events. And whose error it then is."""
    return max((of_its_age(EAGER_CALL_S, device), Family.HOST), (kernel_s + EVENT_S, family))


def vector_ops(path: Path, find: Find) -> Iterator[Row]:
    """One op on (B, H) fp32 between two events. Names in -u take a number in place of the second tensor."""
    for cells in read(path):
        device = find(cells["Device"])
        if device is None:
            continue
        rows, row = int(cells["B"]), int(cells["H"])
        size = 4 * rows * row
        operands = 2 if cells["OPName"] in ("add", "mul", "div", "pow") else 1
        kind = Stream.ROWWISE if cells["OPName"] in ("ln", "softmax") else Stream.POINTWISE
        traffic = rotating(operands * size, size, (operands + 1) * size, device)
        seconds, family = between_events(stream(kind, traffic, device, rows=rows).seconds, kind.family, device)
        measured = float(cells["Latency"]) / 1e3
        tables = ("vector_ops", "vector_ops over 50 us") if measured > LAUNCH_BOUND_S else ("vector_ops",)
        yield Row(tables, device.name, measured, seconds, family)


def conv_ops(path: Path, find: Find) -> Iterator[Row]:
    for cells in read(path):
        device = find(cells["Device"])
        if device is None:
            continue
        side, kernel = int(cells["Input_Size"]), int(cells["Kernel_Szie"])
        stride, padding = int(cells["Stride"]), int(cells["Padding"])
        out = (side + 2 * padding - kernel) // stride + 1
        shape = Convolution(
            batch=int(cells["B"]),
            channels=int(cells["Input_Channel"]),
            filters=int(cells["Output_Channel"]),
            image=(side, side),
            output=(out, out),
            kernel=(kernel, kernel),
            unit_stride=stride == 1,
        )
        traffic = Traffic(dram_read=shape.input_bytes + shape.weight_bytes, dram_written=shape.output_bytes)
        seconds = convolution(shape, traffic, device).seconds + of_its_age(CONVOLUTION_CALL_S, device)
        measured = float(cells["Latency"]) / 1e3
        yield Row(("conv_ops",), device.name, measured, seconds, Family.CONVOLUTION)


def eager_ops(path: Path, find: Find) -> Iterator[Row]:
    """Kernel time of eager ops from traces: shapes and types are all that a row says of its operands."""
    for cells in read(path):
        device = find(cells["gpu"])
        op = recorded(cells["op"], *_texts(cells), assumed_type="bf16")
        found = counted_op(op, Surroundings()) if op else None
        if device is None or found is None or found.work is None or not float(cells["kernel_us_per_call"] or 0):
            continue
        work, inputs = found.work, found.inputs
        if canonical(cells["op"]) == "copy" and {ref.dtype for ref in inputs} == {found.outputs[0].dtype}:
            inputs = tuple(map(_relaid, inputs))
        traffic = rotating(work.bytes_read, work.bytes_written, work.bytes, device)
        modes, name = tuple(work.matrix), canonical(cells["op"])
        call = Call(name, found.cls, inputs, found.outputs, modes, work.matrix_flops, work.flops_dense)
        predicted = of_call(call, traffic, device)
        measured = float(cells["kernel_us_per_call"]) / 1e6
        yield Row(("eager_ops",), device.name, measured, predicted.estimate.seconds, predicted.family)


def _texts(cells: Cells) -> tuple[bytes, bytes, bytes, bytes]:
    """Sizes, strides, types and values, of which strides are not in the table."""
    return cells["input_dims"].encode(), b"", cells["input_types"].encode(), cells.get("concrete_inputs", "").encode()


def _relaid(ref: TensorRef) -> TensorRef:
    """In another order: a copy in the same type is made for nothing else."""
    return ref._replace(stride=tuple(prod(ref.shape[:dim]) for dim in range(len(ref.shape))))


Format = Callable[[Path, Find], Iterable[Row]]

FORMATS: dict[str, Format] = {
    "gemm*.csv": products,
    "attention*.csv": attentions,
    "llm_ops*.csv": llm_ops,
    "vector_ops*.csv": vector_ops,
    "conv_ops*.csv": conv_ops,
    "eager_ops*.csv": eager_ops,
}
"""Name of the file to its reader."""
