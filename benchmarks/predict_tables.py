"""The public tables' rows as (what was measured, what we predict). One function a format, none knows a device."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from csv import DictReader
from dataclasses import dataclass
from functools import cache
from math import isfinite, prod
from pathlib import Path
from typing import TypeVar

from gobrrr.diagnose.residency import Traffic
from gobrrr.dtypes import ITEM_BYTES, MATRIX_MODES, dtype_name
from gobrrr.errors import GobrrrError
from gobrrr.machine import datasheets
from gobrrr.predict.accelerator import Accelerator, from_datasheet
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

Known = TypeVar("Known")


class LeftOut(Exception):
    """A row, or a table, that cannot be scored, and why."""


class Cells(dict[str, str]):
    """One row by its columns. Cells that are not what is asked for leave the row out."""

    def text(self, column: str) -> str:
        found = (self.get(column) or "").strip()
        if not found:
            raise LeftOut(f"{column} is empty")
        return found

    def number(self, column: str) -> float:
        text = self.text(column)
        try:
            found = float(text)
        except ValueError:
            raise LeftOut(f"{column} is {text!r}, no number") from None
        if not isfinite(found):
            raise LeftOut(f"{column} is {text!r}, no number")
        return found

    def positive(self, column: str) -> float:
        found = self.number(column)
        if found <= 0:
            raise LeftOut(f"{column} is not above zero")
        return found

    def count(self, column: str) -> int:
        found = self.positive(column)
        if found != int(found):
            raise LeftOut(f"{column} is not whole")
        return int(found)

    def one_of(self, column: str, known: Mapping[str, Known]) -> Known:
        text = self.text(column)
        if text not in known:
            raise LeftOut(f"{column} is {text!r}, not one of {', '.join(known)}")
        return known[text]


@cache
def accelerator(spelled: str) -> Accelerator:
    """By the name that a table gives it."""
    sheet = datasheets.meant(spelled)
    if sheet is None:
        near = ", ".join(datasheets.near(spelled))
        raise LeftOut(f"no datasheet is of {spelled!r}" + (f"; near are {near}" if near else ""))
    return from_datasheet(sheet)


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
    """Rows of a table, whatever its columns are separated by."""
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    separator = max(",;\t", key=text.partition("\n")[0].count)
    lines = DictReader(text.splitlines(), delimiter=separator)
    lines.fieldnames = [name.strip() for name in lines.fieldnames or ()]
    yield from map(Cells, lines)


def products(cells: Cells, device: Accelerator) -> Row:
    """`F.linear` in a graph. The 8-bit rows quantize their input first: a kernel that reads 2 bytes and writes 1."""
    m, n, k = (cells.count(name) for name in "mnk")
    mode = _mode(cells.text("dtype"), device)
    is_scaled = mode in ("fp8", "int8")
    width = ITEM_BYTES.get(mode, 4)
    shape = Product(m, n, k, mode=mode, quiet=cells.get("source", "").startswith("vllm"))
    operands, result = width * (m * k + n * k), max(2, width) * m * n
    traffic = rotating(operands, result, WEIGHT_COPIES * width * n * k + width * m * k + result, device)
    seconds = product(shape, memory_time(traffic, device, streamed(device)), device).seconds
    if is_scaled:
        seconds += stream(Stream.POINTWISE, Traffic(dram_read=2 * m * k, dram_written=m * k), device).seconds
    family = Family.SCALED_PRODUCT if is_scaled else Family.PRODUCT
    return Row((f"gemm {mode}",), device.name, cells.positive("latency_ms") / 1e3, seconds, family)


def _mode(spelled: str, device: Accelerator) -> str:
    """Wider types stand in for 16-bit ones that a card lacks, and for none of 8."""
    mode = spelled if spelled in MATRIX_MODES else dtype_name(spelled)
    if mode not in MATRIX_MODES:
        raise LeftOut(f"dtype is {spelled!r}, not one of {', '.join(MATRIX_MODES)}")
    if mode in ("fp8", "int8") and mode not in device.matmul_flops_per_s:
        raise LeftOut(f"{device.name} multiplies nothing in {mode}")
    return mode


def attentions(cells: Cells, device: Accelerator) -> Row:
    table, of = cells.one_of("kind", ATTENTIONS)
    length = cells.count("isl") + int(cells.number("step"))
    shape = Attention(
        batch=cells.count("batch_size"),
        heads=cells.count("num_heads"),
        kv_heads=cells.count("num_key_value_heads"),
        queries=length if of is prefill else 1,
        keys=length,
        head_dim=cells.count("head_dim"),
        window=max(0, int(cells.number("window_size"))) or None if cells.get("window_size") else None,
        current=True,
    )
    seconds = PAGED_S + of(shape, device).seconds
    return Row((table,), device.name, cells.positive("latency_ms") / 1e3, seconds, Family.ATTENTION)


ATTENTIONS = {"context": ("attention prefill", prefill), "generation": ("attention decode", decode)}

LLM_STREAMS = {
    "add": (Stream.POINTWISE, 3.0),
    "gelu": (Stream.POINTWISE, 2.0),
    "silu_mul": (Stream.SINGLY, 1.5),
    "rmsnorm": (Stream.ROWWISE, 2.0),
    "layernorm": (Stream.ROWWISE, 2.0),
    "rope_inplace_q_k": (Stream.SINGLY, 2.0),
}
"""Kind to elements moved per element of K."""


def llm_ops(cells: Cells, device: Accelerator) -> Row:
    m, measured = cells.count("M"), cells.positive("median_ms") / 1e3
    kind = cells.text("kind")
    if kind == "gemm":
        k, n = cells.count("K"), cells.count("N")
        operands, result = 2 * (m * k + n * k), 2 * m * n
        traffic = rotating(operands, result, operands + result, device)
        memory_s = memory_time(traffic, device, streamed(device))
        seconds = product(Product(m, n, k, mode="fp16"), memory_s, device).seconds
        return Row(("llm_ops", "llm_ops gemm"), device.name, measured, seconds, Family.PRODUCT)
    if kind.startswith("embedding"):
        way = Stream.GATHER
        read_bytes = written = 2.0 * m * cells.count("N")
    else:
        way, elements = cells.one_of("kind", LLM_STREAMS)
        written = 2 * m * cells.count("K") * (elements - 1 if elements < 2 else 1)
        read_bytes = 2 * m * cells.count("K") * elements - written
    traffic = rotating(read_bytes, written, read_bytes + written, device)
    seconds = stream(way, traffic, device, rows=m).seconds
    return Row(("llm_ops", "llm_ops streams"), device.name, measured, seconds, way.family)


def of_its_age(seconds: float, device: Accelerator) -> float:
    return seconds * max(0.7, 1 + AGE * (2020 - device.year))


def between_events(kernel_s: float, family: Family, device: Accelerator) -> tuple[float, Family]:
    """Whichever is slower: the host's call, or the kernel with its events. And whose error it then is."""
    return max((of_its_age(EAGER_CALL_S, device), Family.HOST), (kernel_s + EVENT_S, family))


TWO_TENSORS = ("add", "mul", "div", "pow", "sub")
VECTOR_OPS = {
    **dict.fromkeys(TWO_TENSORS, (Stream.POINTWISE, 2)),
    **{f"{name}u": (Stream.POINTWISE, 1) for name in TWO_TENSORS},
    **dict.fromkeys(("relu", "gelu", "tanh", "silu", "sigmoid", "exp", "sqrt"), (Stream.POINTWISE, 1)),
    **dict.fromkeys(("ln", "softmax"), (Stream.ROWWISE, 1)),
}
"""Name to kernel and tensors read. Names in -u take a number in place of the second tensor."""


def vector_ops(cells: Cells, device: Accelerator) -> Row:
    """One op on (B, H) fp32 between two events."""
    kind, operands = cells.one_of("OPName", VECTOR_OPS)
    rows, row = cells.count("B"), cells.count("H")
    size = 4 * rows * row
    traffic = rotating(operands * size, size, (operands + 1) * size, device)
    seconds, family = between_events(stream(kind, traffic, device, rows=rows).seconds, kind.family, device)
    measured = cells.positive("Latency") / 1e3
    tables = ("vector_ops", "vector_ops over 50 us") if measured > LAUNCH_BOUND_S else ("vector_ops",)
    return Row(tables, device.name, measured, seconds, family)


def conv_ops(cells: Cells, device: Accelerator) -> Row:
    side, kernel, stride = (cells.count(name) for name in ("Input_Size", "Kernel_Szie", "Stride"))
    out = (side + 2 * int(cells.number("Padding")) - kernel) // stride + 1
    if out < 1:
        raise LeftOut("the kernel is larger than the image")
    shape = Convolution(
        batch=cells.count("B"),
        channels=cells.count("Input_Channel"),
        filters=cells.count("Output_Channel"),
        image=(side, side),
        output=(out, out),
        kernel=(kernel, kernel),
        unit_stride=stride == 1,
    )
    traffic = Traffic(dram_read=shape.input_bytes + shape.weight_bytes, dram_written=shape.output_bytes)
    seconds = convolution(shape, traffic, device).seconds + of_its_age(CONVOLUTION_CALL_S, device)
    return Row(("conv_ops",), device.name, cells.positive("Latency") / 1e3, seconds, Family.CONVOLUTION)


def eager_ops(cells: Cells, device: Accelerator) -> Row:
    """Kernel time of eager ops from traces: shapes and types are all that a row says of its operands."""
    measured = cells.positive("kernel_us_per_call") / 1e6
    op = recorded(cells.text("op"), *_texts(cells), assumed_type="bf16")
    found = counted_op(op, Surroundings()) if op else None
    if found is None or found.work is None:
        raise LeftOut(f"the work of {cells.text('op')} is unknown")
    work, inputs = found.work, found.inputs
    if canonical(cells["op"]) == "copy" and {ref.dtype for ref in inputs} == {found.outputs[0].dtype}:
        inputs = tuple(map(_relaid, inputs))
    traffic = rotating(work.bytes_read, work.bytes_written, work.bytes, device)
    modes, name = tuple(work.matrix), canonical(cells["op"])
    call = Call(name, found.cls, inputs, found.outputs, modes, work.matrix_flops, work.flops_dense)
    predicted = of_call(call, traffic, device)
    return Row(("eager_ops",), device.name, measured, predicted.estimate.seconds, predicted.family)


def _texts(cells: Cells) -> tuple[bytes, bytes, bytes, bytes]:
    """Sizes, strides, types and values, of which strides are not in the table."""
    return cells["input_dims"].encode(), b"", cells["input_types"].encode(), cells.get("concrete_inputs", "").encode()


def _relaid(ref: TensorRef) -> TensorRef:
    """In another order: a copy in the same type is made for nothing else."""
    return ref._replace(stride=tuple(prod(ref.shape[:dim]) for dim in range(len(ref.shape))))


@dataclass(frozen=True, slots=True)
class Format:
    row: Callable[[Cells, Accelerator], Row]
    columns: tuple[str, ...]
    """That a table of it has; the first one names the accelerator."""

    def rows(self, path: Path, left_out: Counter[str]) -> Iterator[Row]:
        for cells in read(path):
            try:
                yield self.row(cells, accelerator(cells.text(self.columns[0])))
            except (LeftOut, GobrrrError) as why:
                left_out[str(why)] += 1


def columns(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FORMATS = {
    "gemm": Format(products, columns("system dtype m n k latency_ms")),
    "attention": Format(
        attentions,
        columns("system kind batch_size isl step num_heads num_key_value_heads head_dim latency_ms"),
    ),
    "llm_ops": Format(llm_ops, columns("gpu kind M K N median_ms")),
    "vector_ops": Format(vector_ops, columns("Device OPName Latency B H")),
    "conv_ops": Format(
        conv_ops,
        columns("Device Latency B Input_Channel Output_Channel Kernel_Szie Input_Size Stride Padding"),
    ),
    "eager_ops": Format(eager_ops, columns("gpu op input_dims input_types kernel_us_per_call")),
}


def columns_of(path: Path) -> set[str]:
    """None of a table without rows."""
    return set(next(read(path), ()))
