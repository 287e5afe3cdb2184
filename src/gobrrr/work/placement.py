"""Placement: the one device that a step works on. No torch here."""

from collections import Counter as Multiset
from collections import defaultdict
from collections.abc import Sequence

from gobrrr.errors import UsageError
from gobrrr.work.op import Op, OpClass

MOST_ELSEWHERE = 0.05
"""Of the work on other devices, as an optimizer's counters are on the host; more of it would pass for idle time."""


def one_device(ops: Sequence[Op]) -> str:
    """The device that does all the work, but for a little of the host's."""
    device, shares = _device(ops), _work_by_device(ops)
    others = [other for other, share in shares.items() if other != device and share > MOST_ELSEWHERE]
    if others:
        raise UsageError(f"the step works on {' and on '.join([device, *others])}: keep it on one device to examine it")
    if device == "meta":
        raise UsageError("the step works on the meta device, where nothing runs: build the model on a real one")
    return device


def _device(ops: Sequence[Op]) -> str:
    """Where most kernels are launched; work on an accelerator outweighs the host's own small ops."""
    launched = Multiset(op.device for op in ops if op.launches)
    accelerated = Multiset({device: number for device, number in launched.items() if device != "cpu"})
    return next((device for device, _ in (accelerated or launched).most_common(1)), "cpu")


def _work_by_device(ops: Sequence[Op]) -> dict[str, float]:
    """Shares of the bytes that ops other than copies move. What the host does outside of any module, as making a batch
    ready, is its own affair.
    """
    moved: dict[str, float] = defaultdict(float)
    for op in ops:
        if op.work is not None and op.cls is not OpClass.MOVEMENT and (op.module or op.device != "cpu"):
            moved[op.device] += op.work.bytes
    whole = sum(moved.values())
    return {device: part / whole if whole else 0.0 for device, part in moved.items()}
