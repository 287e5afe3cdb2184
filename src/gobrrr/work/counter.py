"""The counter: runs a program under a dispatch mode and writes down every op with its Work.

It works below autograd, so forward, backward and optimizer all pass through, on real, meta and fake tensors. Ops that
are mere compositions are decomposed first; tensor subclasses unwrap themselves, and their inner ops are counted.
"""

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from gobrrr.dtypes import ITEM_BYTES, dtype_name
from gobrrr.steps import Steps, stepwise
from gobrrr.work import inductor, precision
from gobrrr.work.call import Call
from gobrrr.work.fake import ASK_DEVICE, device_of
from gobrrr.work.op import CountedBy, Op, OpClass, Phase, TensorRef
from gobrrr.work.program import Memory, Program
from gobrrr.work.registry import Rule, counted, rule_for
from gobrrr.work.storages import Storages
from gobrrr.work.torch_flops import torch_flops
from gobrrr.work.whereabouts import Place, Whereabouts
from gobrrr.work.work import Work

_PLAIN_TYPES = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor})
_SILENT_NAMESPACES = frozenset({"prim", "profiler"})
_KERNEL_FREE = frozenset(
    "empty empty_strided empty_like new_empty new_empty_strided empty_permuted _unsafe_view lift_fresh resize "
    "resize_as set record_stream _assert_tensor_metadata _reshape_alias unsafe_split unsafe_split_with_sizes "
    "_efficientzerotensor _local_scalar_dense _c10d_functional::wait_tensor "
    "_c10d_functional::_wrap_tensor_autograd".split()
)
"""Ops that allocate, look, wait, relabel or hand a number to the host; views are known by their schema or tag."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What is fixed for an overload, read once from its schema."""

    name: str
    argument_names: tuple[str, ...]
    defaults: dict[str, Any]
    keyword_only: frozenset[str]
    write_only: frozenset[str]
    mutated: tuple[str, ...]
    launches: bool
    decomposes: bool
    silent: bool
    rule: Rule | None

    @classmethod
    def of(cls, func: OpOverload) -> "Signature":
        schema = func._schema  # noqa: SLF001 (the schema is public in all but name)
        base = _name(func).partition(".")[0]
        rule = rule_for(base)
        silent = func.namespace in _SILENT_NAMESPACES
        written = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        short = base.removeprefix("aten::").removesuffix("_")
        makes_nothing = not schema.is_mutable and not any("Tensor" in str(r.type) for r in schema.returns)
        is_view = func.is_view or torch.Tag.inplace_view in func.tags
        return cls(
            name=base,
            argument_names=tuple(a.name for a in schema.arguments),
            defaults={a.name: a.default_value for a in schema.arguments if a.has_default_value()},
            keyword_only=frozenset(a.name for a in schema.arguments if a.kwarg_only),
            write_only=frozenset(a.name for a in written if a.kwarg_only),
            mutated=tuple(a.name for a in written),
            launches=short not in _KERNEL_FREE and (rule is not None or not (is_view or makes_nothing)),
            decomposes=not silent and _is_composition(func, has_rule=rule is not None),
            silent=silent,
            rule=rule,
        )

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """In the order of the schema, whatever was passed by keyword or left out."""
        given = {**self.defaults, **dict(zip(self.argument_names, args, strict=False)), **kwargs}
        return {name: given[name] for name in self.argument_names if name in given}


@contextmanager
def uncompiled() -> Iterator[None]:
    """What torch.compile has wrapped runs as it was written: the program is what stands before compilation.

    Torch then warns that our hooks fire for the wrapper as well, which only adds a name to the path.
    """
    with warnings.catch_warnings(), torch.compiler.set_stance("force_eager"):
        warnings.filterwarnings("ignore", message="Using `torch.compile\\(module\\)` when there are global hooks")
        yield


@stepwise
def counted_program() -> Steps[Program]:
    """The program of one step, before compilation."""
    with uncompiled(), Counter() as counter:
        yield 1
    return counter.program()


COMPILATIONS = 3
"""Steps that may compile something while they are counted, so that not all of it was seen; then another is counted."""


@stepwise
def dispatched_program() -> Steps[Program | None]:
    """What is dispatched once compiled, generated kernels among it; None where none is."""
    for _ in range(COMPILATIONS):
        if not inductor.has_generated():
            return None
        counter, modules = Counter(has_hooks=False), inductor.generated_modules()
        with inductor.ungraphed(), counter, inductor.watched(counter.generated):
            yield 1
        if inductor.generated_modules() == modules:
            break
    return counter.program() if counter.saw_generated else None


class Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """`with Counter() as counter: step()`, then `counter.program()`."""

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """What is compiled runs compiled: the ops that it still dispatches reach us."""
        return True

    def __init__(self, *, has_hooks: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._ops: list[Op] = []
        self._storages = Storages()
        self._whereabouts = Whereabouts(has_hooks)
        self._signatures: dict[Any, Signature] = {}
        self._counted: dict[Any, tuple[CountedBy, Work | None]] = {}
        self._dtypes: dict[torch.dtype, str] = {}
        self._backward_starts: list[int] = []
        self.saw_generated = False

    def __enter__(self) -> Self:
        self._matmul_tf32, self._convolution_tf32 = precision.matmul_is_tf32(), precision.convolution_is_tf32()
        self._whereabouts.__enter__()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)  # type: ignore[no-untyped-call]
        self._whereabouts.__exit__(kind, error, traceback)
        self._storages.forget()

    @contextmanager
    def _again(self) -> Iterator[None]:
        """The mode alone: torch sets it aside while it handles an op, and the parts of a composition must reach it."""
        super().__enter__()  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            super().__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def program(self) -> Program:
        """The ungrouped sequence of ops, and the memory they held."""
        return Program(tuple(self._ops), Memory.of(self._storages.lives, len(self._ops), self._backward_starts))

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is ASK_DEVICE and isinstance(args[0], FakeTensor):
            return device_of(args[0])
        if isinstance(func, HigherOrderOperator):
            return self._higher_order(func, args, kwargs)
        if not _PLAIN_TYPES.issuperset(types):
            return NotImplemented
        signature = self._signatures.get(func)
        if signature is None:
            signature = self._signatures[func] = Signature.of(func)
        if signature.silent:
            return func(*args, **kwargs)
        if signature.decomposes:
            with self._again():
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        place = self._whereabouts.place()
        bound = self._described(signature.bind(args, kwargs), place, born=0)
        self._storages.now = len(self._ops)
        output = func(*args, **kwargs)
        self._record(
            func, signature, bound, self._outputs(signature, bound, output, place), place, _device(args, output)
        )
        return output

    def _higher_order(self, func: HigherOrderOperator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An op over functions, such as `flex_attention`, is one kernel once compiled, and nobody knows its work."""
        place = self._whereabouts.place()
        inputs = tuple(_refs_in(self._described((args, tuple(kwargs.values())), place, born=0)))
        self._storages.now = len(self._ops)
        output = func(*args, **kwargs)
        outputs = tuple(self._ref(tensor, place, born=len(self._ops) + 1) for tensor in _tensors_in(output))
        self._append(
            Op(
                name=f"higher_order::{_name(func)}",
                cls=OpClass.OTHER,
                phase=place.phase,
                module=place.module,
                source=place.source,
                device=_device(args, output),
                inputs=inputs,
                outputs=outputs,
                counted_by=CountedBy.UNKNOWN,
                work=None,
                launches=True,
                recomputed=place.recomputed,
            )
        )
        return output

    def generated(self, call: inductor.Generated) -> AbstractContextManager[object]:
        """Notes the call of a generated kernel, whose Work is that of the ops it was made from."""
        place = self._whereabouts.place()
        self.saw_generated, self._storages.now = True, len(self._ops)
        self._append(
            Op(
                name=call.name,
                cls=OpClass.OTHER,
                phase=place.phase,
                module=place.module,
                source=place.source,
                device=_device(call.written, call.read),
                inputs=tuple(self._ref(tensor, place, born=0) for tensor in call.read),
                outputs=tuple(self._ref(tensor, place, born=len(self._ops) + 1) for tensor in call.written),
                counted_by=CountedBy.UNKNOWN,
                work=None,
                launches=True,
            )
        )
        return nullcontext()

    def _append(self, op: Op) -> None:
        if op.phase is Phase.BACKWARD and (not self._ops or self._ops[-1].phase is not Phase.BACKWARD):
            self._backward_starts.append(len(self._ops))
        self._ops.append(op)

    def _record(
        self,
        func: Any,
        signature: Signature,
        bound: dict[str, Any],
        outputs: tuple[TensorRef, ...],
        place: Place,
        device: str,
    ) -> None:
        call = Call(
            name=signature.name,
            args=bound,
            outputs=outputs,
            write_only=signature.write_only,
            keyword_only=signature.keyword_only,
            tf32=self._tf32(signature, device),
        )
        launches = signature.launches and (not outputs or any(output.numel for output in outputs))
        counted_by, work = self._work(signature, call, launches=launches)
        self._append(
            Op(
                name=_name(func),
                cls=_op_class(signature, place.phase, func),
                phase=place.phase,
                module=place.module,
                source=place.source,
                device=device,
                inputs=call.tensors(),
                outputs=outputs,
                counted_by=counted_by,
                work=work,
                launches=launches,
                recomputed=place.recomputed,
            )
        )

    def _work(self, signature: Signature, call: Call, *, launches: bool) -> tuple[CountedBy, Work | None]:
        """Counted once per signature: the layers of a model repeat the same call with other tensors."""
        if not launches:
            return CountedBy.FORMULA, Work()
        key = (call.name, call.tf32, _shape_key(call))
        if key not in self._counted:
            self._counted[key] = _count(signature, call)
        return self._counted[key]

    def _tf32(self, signature: Signature, device: str) -> bool:
        if not device.startswith("cuda"):
            return False
        return self._convolution_tf32 if "conv" in signature.name or "rnn" in signature.name else self._matmul_tf32

    def _outputs(self, signature: Signature, bound: dict[str, Any], output: Any, place: Place) -> tuple[TensorRef, ...]:
        """What it returns, and what it changes without returning it, as foreach ops do."""
        returned = [self._ref(tensor, place, born=len(self._ops) + 1) for tensor in _tensors_in(output)]
        changed = (ref for name in signature.mutated for ref in _refs_in(bound.get(name)))
        return tuple(dict.fromkeys((*returned, *changed)))

    def _described(self, value: Any, place: Place, *, born: int) -> Any:
        """The same value with tensors replaced by their descriptions and lists by tuples."""
        if isinstance(value, torch.Tensor):
            return self._ref(value, place, born=born)
        if isinstance(value, list | tuple):
            return tuple(self._described(item, place, born=born) for item in value)
        if isinstance(value, dict):
            return {name: self._described(item, place, born=born) for name, item in value.items()}
        return value

    def _ref(self, tensor: torch.Tensor, place: Place, *, born: int) -> TensorRef:
        dtype = self._dtypes.get(tensor.dtype)
        if dtype is None:
            dtype = self._dtypes[tensor.dtype] = dtype_name(str(tensor.dtype)) or str(tensor.dtype)
        if tensor.is_nested:  # has no sizes to ask for
            return TensorRef(None, 0, (tensor.numel(),), (0,), "opaque")
        if tensor.layout is not torch.strided or tensor.is_quantized:
            return TensorRef(None, 0, tuple(tensor.shape), (0,) * tensor.dim(), "opaque")
        number = self._storages.number(tensor, place.phase, place.module, born=born)
        return TensorRef(number, int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride(), dtype)


def _count(signature: Signature, call: Call) -> tuple[CountedBy, Work | None]:
    """By formula, else by default for torch's own ops, else unknown.

    A type of unknown width makes the bytes, and so the op, unknown.
    """
    if any(ref.dtype not in ITEM_BYTES for ref in (*call.tensors(*call.args), *call.outputs)):
        return CountedBy.UNKNOWN, None
    if signature.rule is not None:
        return CountedBy.FORMULA, signature.rule.formula(call)
    flops = torch_flops(call)
    if flops is None and not call.name.startswith("aten::"):
        return CountedBy.UNKNOWN, None
    return CountedBy.DEFAULT, counted(call, flops_dense=flops or 0, matrix={call.out.dtype: flops} if flops else {})


def _is_composition(func: OpOverload, *, has_rule: bool) -> bool:
    """Whether the op is nothing but calls of others, which are counted in its place.

    Outside of inference mode torch itself takes such an op apart before it reaches us, and so do we in it, formula or
    not: `contiguous` may copy or return what it was given. An op with a derivative of its own is a kernel where one
    exists (`_fused_rms_norm`), and decompositions in Python are made for compilers; both are taken apart only where
    nothing else is known.
    """
    composite = torch._C.DispatchKey.CompositeImplicitAutograd  # noqa: SLF001 (as torch's counter)
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key  # noqa: SLF001
    if has_rule:
        name = _name(func)
        return composite not in func.py_kernels and has_kernel(name, composite) and not has_kernel(name, "Autograd")
    return func._can_decompose()  # noqa: SLF001


def _op_class(signature: Signature, phase: Phase, func: Any) -> OpClass:
    """An optimizer's pointwise passes are the optimizer; its matrix products stay products."""
    if signature.rule is not None:
        cls = signature.rule.cls
    else:
        cls = OpClass.ELEMENTWISE if torch.Tag.pointwise in func.tags else OpClass.OTHER
    return OpClass.OPTIMIZER if phase is Phase.OPTIMIZER and cls is not OpClass.CONTRACTION else cls


def _shape_key(call: Call) -> Any:
    """Equal for calls that do the same work: storages and offsets matter only where views share one."""
    refs = [*call.tensors(*call.args), *call.outputs]
    storages = [ref.storage for ref in refs]
    shared = len(set(storages)) < len(storages)
    aliases = tuple((storages.index(ref.storage), ref.offset) for ref in refs) if shared else None
    return _unaliased(tuple(call.args.items())), tuple(ref[2:] for ref in call.outputs), aliases


def _unaliased(value: Any) -> Any:
    if isinstance(value, TensorRef):
        return value[2:]
    if isinstance(value, tuple):
        return tuple(_unaliased(item) for item in value)
    return value if isinstance(value, int | float | str | bool | None) else str(value)


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors_in(item)


def _refs_in(value: Any) -> Iterator[TensorRef]:
    if isinstance(value, TensorRef):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _refs_in(item)


def _name(func: OpOverload | HigherOrderOperator) -> str:
    name: str = func.name()  # type: ignore[no-untyped-call]
    return name


def _device(args: tuple[Any, ...], output: Any) -> str:
    tensor = next(_tensors_in((output, args)), None)
    if tensor is None:
        return "cpu"
    return str(device_of(tensor) if isinstance(tensor, FakeTensor) else tensor.device)
