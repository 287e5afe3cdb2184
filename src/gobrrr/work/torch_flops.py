"""The FLOP formulas that torch itself ships: `torch.utils.flop_counter.flop_registry`.

The registry is not in that module's `__all__`, so this file is the only one that touches it. Assumed, and held
by a test: it maps op packets to functions that take the op's arguments, with shapes in place of tensors, and
`out_val`; one multiply-add is 2 FLOPs.
"""

from importlib.util import find_spec
from typing import Any

from gobrrr.work.call import Call
from gobrrr.work.op import TensorRef


def torch_flops(call: Call) -> int | None:
    """FLOPs of the call as torch counts them, or None where torch has no formula, or is not there."""
    if find_spec("torch") is None:
        return None
    import torch
    from torch.utils.flop_counter import flop_registry

    namespace, name = call.name.split("::") if "::" in call.name else ("aten", call.name)
    packet = getattr(getattr(torch.ops, namespace), name, None)
    function = flop_registry.get(packet)
    if function is None:
        return None
    positional = [_shapes(value) for key, value in call.args.items() if key not in call.keyword_only]
    keywords = {key: _shapes(value) for key, value in call.args.items() if key in call.keyword_only}
    shapes = [output.shape for output in call.outputs]
    flops: int = function(*positional, **keywords, out_val=shapes[0] if len(shapes) == 1 else shapes)
    return flops


def _shapes(value: Any) -> Any:
    if isinstance(value, TensorRef):
        return value.shape
    return tuple(_shapes(item) for item in value) if isinstance(value, tuple) else value
