"""Kernels that stream: pointwise, row-wise, copies, gathers, optimizers. Bytes through memory and multiprocessors.

Simple kernels are held up by memory alone. Those that reduce rows or shuffle elements pass fewer bytes per cycle
through a multiprocessor than memory delivers on a large card: that, not the memory, makes layer norms slow on an A100.
Fitted to public tables of fp32 ops on P100, V100, A100 and of fp16 ops on A100, A40 (benchmarks/predict.py).
"""

from enum import Enum

from gobrrr.diagnose.residency import Traffic
from gobrrr.predict.accelerator import Accelerator
from gobrrr.predict.estimate import LAUNCH_S, Estimate, memory_time, overlapped
from gobrrr.predict.spread import Family


class Stream(Enum):
    """Cycles of a multiprocessor per byte that passes through it."""

    POINTWISE = 0.032
    ROWWISE = 0.205
    """Reduces along rows."""
    SINGLY = 0.14
    """Takes elements of two bytes one by one, in their order: repeated operands, gated activations, rotations."""
    WINDOWED = 0.164
    """Reads neighbours with each element: depthwise convolutions."""
    COLUMNWISE = 0.2
    """Reduces across rows: gradients of biases and of norms' weights."""
    STRIDED = 0.22
    """Reads or writes in another order than that of memory: a third to a half of an H100's bandwidth."""
    GATHER = 0.44

    @property
    def family(self) -> Family:
        return Family.STREAM if self is Stream.POINTWISE else Family.SHUFFLED


_STREAMED = 0.89
"""Of the sheet's bandwidth: V100 0.90, A100 0.85 to 0.89."""
_FILL_CYCLES = 2600.0
_ASYNCHRONOUS_ROWS = 0.4
"""Of a row's cycles where loads do not hold threads up: layer norms and softmaxes of an H200."""
_ROW_CYCLES = 92.0
"""Of a multiprocessor, for starting and ending one row."""
_SHARPNESS = 2.2


def stream(kind: Stream, traffic: Traffic, accelerator: Accelerator, *, rows: int = 0) -> Estimate:
    memory_s = memory_time(traffic, accelerator, _STREAMED)
    cycles = traffic.bytes * kind.value
    if kind is Stream.ROWWISE:
        cycles = (cycles + _ROW_CYCLES * rows) * (_ASYNCHRONOUS_ROWS if accelerator.asynchronous else 1.0)
    passing_s = cycles / accelerator.cycles_per_s
    latency_s = LAUNCH_S + _FILL_CYCLES / accelerator.clock_hz
    return Estimate(latency_s + overlapped(passing_s, memory_s, _SHARPNESS), 0.0, memory_s, latency_s)
