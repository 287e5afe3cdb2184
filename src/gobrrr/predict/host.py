"""The host: what issuing an op costs it, and how far it runs ahead of the device."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import copysign, exp, log
from typing import NamedTuple

from gobrrr.machine.ceilings import Ceilings
from gobrrr.predict.accelerator import Accelerator
from gobrrr.predict.kernels import Kernel
from gobrrr.work.op import Op, Phase
from gobrrr.work.registry import canonical

DISPATCH_S = 7.1e-6
"""Of one tiny eager add, the unit of everything below: measured on the host of an H200."""
DISPATCH_DOUBT = 0.4
"""In logarithm: on hosts of one kind a dispatch took 6.1 to 10.1 µs and BERT-large's step 64 to 93 ms, unlike it."""
AGE = 0.16
"""How much slower hosts are, a year: cards sit in hosts of their time (see benchmarks/predict_tables.py)."""
LAUNCHING = 3.2
"""Dispatches that an op with a kernel takes, with the module around it: BERT-large's forward and a decoded token."""
PASSING = 0.6
"""One without: a view, an allocation."""
RECORDED = 1.15
"""Times as much where autograd records the op, and plays it back without Python: training steps of BERT-large."""
PARAMETER = 3.0
"""Dispatches for each number that an optimizer reads from the host, two a parameter: what it does in Python for every
one of them. With it a fused AdamW makes BERT-large's step as much faster as was measured: 71.7 ms instead of 92.6."""
CONVOLUTION = 3.4
"""Times as much for an op whose library looks for a plan: ResNet-50 on a V100, at small batches."""
COMPILED = 2.35
"""Dispatches that a kernel takes in compiled code: no dispatcher, but Python still. A decoded token, compiled, asks for
423 of them in 6.0 to 7.9 ms."""
ENTERING_S, ENTERING_TRAINED_S = 30e-6, 150e-6
"""Guards, and the way in and out of compiled code, where it is trained there and back: Python's own time, and so no
dispatches, which cost less where nothing is launched. Measured on a Xeon of 2.8 GHz, as what follows."""
LEAF_S, LEAF_TRAINED_S = 0.7e-6, 8e-6
"""And for each parameter that goes in, and where it is trained for its gradient that comes out. Compiled on an EPYC,
RMSprop took 2.9 µs and NAdam 4.7 µs a parameter, with four and six tensors each."""
REPLAY_S = 12e-6
QUEUE = 1024
"""Kernels that may wait for the device before a launch blocks."""
LAUNCH_LATENCY_S = 4e-6
"""From the launch to the first instruction on an idle device."""

_SYNCS = frozenset({"_local_scalar_dense", "nonzero", "masked_select", "is_nonzero"})


class Issued(NamedTuple):
    """Something that the host does: for so long, and then a kernel may run."""

    host_s: float
    kernel: Kernel
    waits: bool = False
    """The host goes on only when the device is done."""


@dataclass(frozen=True, slots=True)
class Host:
    dispatch_s: float = DISPATCH_S
    replay_s: float = REPLAY_S

    def op_s(self, op: Op, *, trains: bool) -> float:
        if op.phase is Phase.OPTIMIZER and canonical(op.name) in _SYNCS:
            return PARAMETER * self.dispatch_s
        recorded_s = self.dispatch_s * (RECORDED if trains else 1.0)
        if not op.launches:
            return PASSING * recorded_s
        heavy = CONVOLUTION if "conv" in op.name else 1.0
        return LAUNCHING * heavy * recorded_s

    @property
    def compiled_s(self) -> float:
        return COMPILED * self.dispatch_s

    def entering_s(self, ops: Sequence[Op]) -> float:
        return entering_s(ops) * self.dispatch_s / DISPATCH_S


def entering_s(ops: Sequence[Op], calls: int = 1, phase: Phase = Phase.FORWARD) -> float:
    """Of a host such as ours, to run these ops in compiled code that is called so often, and entered in this phase."""
    entering, leaf = (ENTERING_TRAINED_S, LEAF_TRAINED_S) if training(ops) else (ENTERING_S, LEAF_S)
    return calls * entering + leaves(ops, phase) * leaf


def leaves(ops: Sequence[Op], phase: Phase = Phase.FORWARD) -> int:
    """Storages that this phase reads before it wrote them: parameters, and what the step is given; of an optimizer
    gradients and moments too.
    """
    read: set[int | None] = set()
    written: set[int | None] = {None}
    for op in ops:
        if op.phase is phase:
            read.update(ref.storage for ref in op.inputs if ref.storage not in written)
            written.update(ref.storage for ref in op.outputs)
    return len(read)


def training(ops: Sequence[Op]) -> bool:
    return any(op.phase is Phase.BACKWARD for op in ops)


def host_of(accelerator: Accelerator) -> Host:
    """A host of the accelerator's time."""
    return Host(DISPATCH_S * max(1.0, 1 + AGE * (2020 - accelerator.year)))


def calibrated(host: Host, ceilings: Ceilings) -> Host:
    """As far as what was measured lies beyond its own doubt."""
    apart = log((ceilings.dispatch_s or host.dispatch_s) / host.dispatch_s)
    beyond = copysign(max(0.0, abs(apart) - DISPATCH_DOUBT), apart)
    return Host(host.dispatch_s * exp(beyond), ceilings.graph_replay_s or host.replay_s)


def waits(op: Op) -> bool:
    """An optimizer asks for its own count of steps, which lies on the host."""
    return canonical(op.name) in _SYNCS and op.phase is not Phase.OPTIMIZER


class Timelines(NamedTuple):
    step_s: float
    host_s: float
    """Without the time that it waits."""
    busy_s: float


def simulated(issued: Sequence[Issued], *, synchronised: bool = False) -> Timelines:
    """Steps back to back, the host ahead of the device as far as the queue allows; the last step counts.

    `synchronised` steps begin when the device is done with the one before.
    """
    host = device = start = 0.0
    queue: deque[float] = deque(maxlen=QUEUE)
    for _ in range(1 if synchronised else 3):
        start = max(host, device)
        for one in issued:
            host += one.host_s
            seconds = one.kernel.estimate.seconds
            if seconds:
                if len(queue) == QUEUE:
                    host = max(host, queue[0])
                device = max(device, host + LAUNCH_LATENCY_S) + seconds
                queue.append(device)
            if one.waits:
                host = max(host, device)
    busy = sum(one.kernel.estimate.seconds for one in issued)
    return Timelines(max(host, device) - start, sum(one.host_s for one in issued), busy)
