"""The Work of ops that a trace recorded. Their outputs were not: the op itself tells them, or its neighbours do."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import permutations

from gobrrr.dtypes import ITEM_BYTES
from gobrrr.work.call import Call
from gobrrr.work.kernel_names import class_of
from gobrrr.work.op import CountedBy, Op, OpClass, Phase, TensorRef
from gobrrr.work.recorded import Recorded
from gobrrr.work.registry import Rule, canonical, counted, rule_for
from gobrrr.work.results import call_of
from gobrrr.work.traffic import distinct_bytes
from gobrrr.work.work import Work

_GENERATED = ("triton_", "cpp_fused", "Triton")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an op was called in and what came next on its thread: where it says too little of itself."""

    around: Recorded | None = None
    following: tuple[TensorRef, ...] = ()
    """First operands of the next ops."""
    tf32: bool = False


@dataclass(frozen=True, slots=True)
class CountedOp:
    cls: OpClass
    counted_by: CountedBy
    work: Work | None
    inputs: tuple[TensorRef, ...]
    outputs: tuple[TensorRef, ...]

    def ran(self, name: str, phase: Phase, module: str, device: str) -> Op:
        """As an op of a step."""
        return Op(
            name=name,
            cls=self.cls,
            phase=phase,
            module=module,
            source=None,
            device=device,
            inputs=self.inputs,
            outputs=self.outputs,
            counted_by=self.counted_by,
            work=self.work,
            launches=True,
        )


def has_torch() -> bool:
    return find_spec("torch") is not None


def moves_nothing(name: str) -> bool:
    """A view, or an allocation, as far as torch is there to know."""
    if not has_torch():
        return False
    from gobrrr.work import meta

    return not meta.launches(name)


def only_calls(name: str) -> bool:
    """What wraps others, as autograd's nodes do, and ops that are made of others; of what torch is not there to tell
    of, all that have no formula.
    """
    if "::" not in name or name.startswith("autograd::"):
        return True
    if not has_torch():
        return rule_for(name) is None
    from gobrrr.work import meta

    return meta.only_calls(name)


def counted_op(op: Recorded, near: Surroundings) -> CountedOp | None:
    """None if nobody knows what it does: whoever called it may."""
    if op.name.startswith(_GENERATED):
        return _generated(op)
    rule = rule_for(op.name)
    call = _retired(op, near) or call_of(op, tf32=near.tf32) or _on_meta(op, near)
    call = call or _by_neighbours(op, near) or _alike(op, rule)
    if call is None:
        return None
    rule = rule or rule_for(call.name)
    if any(ref.dtype not in ITEM_BYTES for ref in (*call.tensors(*call.args), *call.outputs)):
        return None
    work = _formula(rule, call)
    if work is None:
        return None
    cls = rule.cls if rule is not None else OpClass.OTHER
    by = CountedBy.FORMULA if rule is not None else CountedBy.DEFAULT
    return CountedOp(cls, by, work, _alone(call.tensors()), _alone(call.outputs))


def _formula(rule: Rule | None, call: Call) -> Work | None:
    """A formula may ask for what an old profiler did not record."""
    if rule is None:
        return counted(call) if call.name.startswith("aten::") and call.outputs else None
    try:
        return rule.formula(call)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, AssertionError):
        return None


def _alone(refs: Sequence[TensorRef]) -> tuple[TensorRef, ...]:
    """Which storage an operand lies in was not recorded: no data flow between ops follows from the numbers we gave."""
    return tuple(ref._replace(storage=None) for ref in refs)


def _generated(op: Recorded) -> CountedOp | None:
    """A kernel that a compiler wrote lists its operands, those it reads first: each moves once.

    Whether it changes one in place, and what it computes, was not recorded: a default, but for products, whose operands
    say all of it. A contraction of any other form is unknown, for with bytes alone it would pass for movement.
    """
    operands = [ref for ref in op.tensors if ref.dtype in ITEM_BYTES]
    if not operands:
        return None
    *read, written = operands
    cls = class_of(op.name)
    flops = _product_flops(read, written) if cls is OpClass.CONTRACTION else 0
    if flops is None:
        return None
    work = Work(
        matrix={read[0].dtype: flops} if flops else {},
        flops_dense=flops,
        bytes_read=distinct_bytes(read),
        bytes_written=distinct_bytes([written]),
    )
    return CountedOp(cls, CountedBy.FORMULA if flops else CountedBy.DEFAULT, work, tuple(read), (written,))


def _product_flops(read: Sequence[TensorRef], written: TensorRef) -> int | None:
    """2·M·N·K of the two operands that give the result, if there are such."""
    for left, right in permutations(read, 2):
        if len(left.shape) == len(right.shape) == len(written.shape) >= 2:
            (*batch, rows, inner), (*other, same, columns) = left.shape, right.shape
            if inner == same and batch == other and (*batch, rows, columns) == written.shape:
                return 2 * written.numel * inner
    return None


def _on_meta(op: Recorded, near: Surroundings) -> Call | None:
    if not has_torch():
        return None
    from gobrrr.work import meta

    return meta.call_of(op, tf32=near.tf32)


_RETIRED: dict[str, tuple[bool, bool]] = {
    "cudnn_convolution_backward": (True, True),
    "cudnn_convolution_backward_input": (True, False),
    "cudnn_convolution_backward_weight": (False, True),
    "miopen_convolution_backward": (True, True),
    "miopen_convolution_backward_input": (True, False),
    "miopen_convolution_backward_weight": (False, True),
}
"""Ops that torch has no more: of which of image and weight they give the gradient."""


def _retired(op: Recorded, near: Surroundings) -> Call | None:
    """The whole backward lists image, gradient and weight; a half of it lacks one, which the whole around it has."""
    gradients = _RETIRED.get(canonical(op.name))
    if gradients is None:
        return None
    whole = near.around if gradients != (True, True) and near.around is not None else op
    if len(whole.tensors) < 3:
        return None
    image, grad, weight = whole.tensors[:3]
    outputs = tuple(ref for ref, wanted in zip((image, weight), gradients, strict=True) if wanted)
    args = {
        "grad_output": grad,
        "input": image,
        "weight": weight,
        "transposed": False,
        "output_mask": (*gradients, False),
    }
    return Call("aten::convolution_backward", args, outputs, tf32=near.tf32)


_CONVOLUTIONS = frozenset(
    "convolution _convolution cudnn_convolution miopen_convolution conv2d mkldnn_convolution".split()
)


def needs_neighbours(name: str) -> bool:
    return canonical(name) in _CONVOLUTIONS


def _by_neighbours(op: Recorded, near: Surroundings) -> Call | None:
    """A convolution whose stride was not recorded gives what the next op takes that could take it."""
    if not needs_neighbours(op.name) or len(op.tensors) < 2:
        return None
    image, weight = op.tensors[:2]
    looks = (len(image.shape), image.shape[:1], weight.shape[:1])
    fitting = [ref for ref in near.following if (len(ref.shape), ref.shape[:1], ref.shape[1:2]) == looks]
    if not fitting:
        return None
    result = fitting[0]._replace(dtype=image.dtype)
    args = {
        "input": image,
        "weight": weight,
        "bias": op.tensors[2] if len(op.tensors) > 2 else None,
        **dict.fromkeys(("stride", "padding", "dilation")),
        "transposed": False,
        "output_padding": None,
        "groups": 1,
    }
    return Call("aten::convolution", args, (result,), tf32=near.tf32)


_FIRST_OPERAND: dict[str, tuple[str, ...]] = {
    "cudnn_batch_norm": ("input", "weight", "bias", "running_mean", "running_var"),
    "miopen_batch_norm": ("input", "weight", "bias", "running_mean", "running_var"),
    "native_batch_norm": ("input", "weight", "bias", "running_mean", "running_var"),
    "cudnn_batch_norm_backward": ("input", "grad_output", "weight"),
    "miopen_batch_norm_backward": ("input", "grad_output", "weight"),
    "native_batch_norm_backward": ("grad_out", "input", "weight"),
    "threshold_backward": ("grad_output", "self"),
}
"""Ops whose result looks like their first operand, with the names of their operands."""


def _alike(op: Recorded, rule: Rule | None) -> Call | None:
    names = _FIRST_OPERAND.get(canonical(op.name))
    if names is None and rule is not None and rule.cls is OpClass.ELEMENTWISE:
        names = tuple(f"operand{place}" for place in range(len(op.tensors)))
    if names is None or not op.tensors:
        return None
    args = dict(zip(names, op.tensors, strict=False))
    largest = max(args.values(), key=lambda ref: ref.numel)
    return Call(op.name, {**args, "training": True}, (_of_type(largest, op.tensors[0]),))


def _of_type(ref: TensorRef, like: TensorRef) -> TensorRef:
    """A new tensor of this shape and of the other's type."""
    return ref._replace(dtype=like.dtype if like.shape else ref.dtype)


def unknown_op(kernel: str) -> CountedOp:
    """Its class from the kernel's name, and nothing else."""
    return CountedOp(class_of(kernel), CountedBy.UNKNOWN, None, (), ())
