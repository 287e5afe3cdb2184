"""What torch chooses on a CUDA device, chosen here where there is none.

A program that is counted on the CPU holds the CPU's choices: attention with dropout is not fused, optimizers loop over
parameters, and autocast leaves norms and powers in half precision. A step that is meant for an accelerator would be
counted with all of its scores, with thousands of ops too many and with casts missing.

Attention follows torch's own selection, in its order: flash for 16-bit operands without a mask, the memory-efficient
kernel where heads are as many and aligned, else products and a softmax. Fused kernels want a mask that lies dense along
its last dimension: one that is broadcast along it, as some libraries make it when traced, falls through to products.

Assumed, and held by tests: the private ops run on fake tensors of the CPU and have backward passes of their own, CPU
autocast has no rule of its own for the ops listed, and optimizers ask torch.optim.optimizer for the devices on which
they take many tensors at once.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from unittest import mock

import torch
from torch.library import _scoped_library
from torch.nn import functional

_ATEN = torch.ops.aten
_optimizer = import_module("torch.optim.optimizer")  # torch.optim hides its module of that name

IN_FP32 = (
    "layer_norm group_norm pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar exp log rsqrt softplus logsumexp".split()
)
"""That CUDA's autocast casts its operands for."""
TO_FP32 = ["softmax.int", "log_softmax.int", "sum", "sum.dim_IntList", "cumsum"]
"""Whose result it wants in fp32."""
_HALF = (torch.float16, torch.bfloat16)
_LONGEST_HEAD = 256
"""Of flash's. The efficient kernel takes any that fills 16 bytes."""


@contextmanager
def cuda_choices() -> Iterator[None]:
    attention, dropout = functional.scaled_dot_product_attention, functional.dropout
    with ExitStack() as stack:
        library = stack.enter_context(_scoped_library("aten", "IMPL"))
        for name in (*IN_FP32, *TO_FP32):
            library.impl(name, _in_fp32(name), "AutocastCPU")
        for owner, name, chosen in (
            (_optimizer, "_get_foreach_kernels_supported_devices", lambda: ["cpu", "cuda"]),
            (functional, "scaled_dot_product_attention", _on_cpu(attention, _attended)),
            (functional, "dropout", _on_cpu(dropout, _dropped)),
        ):
            stack.enter_context(mock.patch.object(owner, name, chosen))
        yield


def _on_cpu(original: Callable[..., Any], chosen: Callable[..., Any]) -> Callable[..., Any]:
    """Tensors of another device have torch's own choice."""

    def called(*args: Any, **kwargs: Any) -> Any:
        first = next(value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))
        return (chosen if first.device.type == "cpu" else original)(*args, **kwargs)

    return called


def _in_fp32(name: str) -> Callable[..., Any]:
    packet, _, overload = name.partition(".")
    op = getattr(getattr(_ATEN, packet), overload or "default")

    def called(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cpu", enabled=False):
            if name in TO_FP32:
                return op(*args, **kwargs if args[0].dtype not in _HALF else {"dtype": torch.float32, **kwargs})
            return op(*(_wide(arg) for arg in args), **kwargs)

    return called


def _wide(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in _HALF else value


def _dropped(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:  # noqa: A002, FBT001, FBT002 (torch's signature)
    del inplace  # the fused kernel has a result of its own either way
    return torch.native_dropout(input, p, train=True)[0] if training and p else input


def _attended(*args: Any, **kwargs: Any) -> torch.Tensor:
    return _Asked(*args, **kwargs).answered()


@dataclass(frozen=True, slots=True)
class _Asked:
    """The arguments of `scaled_dot_product_attention`, by torch's own names."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    attn_mask: torch.Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False

    def answered(self) -> torch.Tensor:
        operands = self._operands
        dtype, dropout = operands[0].dtype, (self.dropout_p, self.is_causal)
        if self._is_fusible and self.attn_mask is None and dtype in _HALF and operands[0].shape[-1] <= _LONGEST_HEAD:
            found = _ATEN._scaled_dot_product_flash_attention(*operands, *dropout, scale=self.scale)  # noqa: SLF001
        elif self._is_fusible and self._is_aligned(dtype):
            trains = torch.is_grad_enabled() and any(operand.requires_grad for operand in operands)
            bias = self._bias(dtype, expanded=True)
            found = _ATEN._scaled_dot_product_efficient_attention(*operands, bias, trains, *dropout, scale=self.scale)  # noqa: SLF001
        else:
            found = _ATEN._scaled_dot_product_attention_math(  # noqa: SLF001
                *operands, self._bias(dtype), *dropout, scale=self.scale, enable_gqa=self.enable_gqa
            )
        out: torch.Tensor = found[0]
        return out

    @property
    def _operands(self) -> tuple[torch.Tensor, ...]:
        """As autocast hands them on."""
        operands = self.query, self.key, self.value
        if not torch.is_autocast_enabled("cpu"):
            return operands
        return tuple(operand.to(torch.get_autocast_dtype("cpu")) for operand in operands)

    @property
    def _is_fusible(self) -> bool:
        given = [tensor for tensor in (self.query, self.key, self.value, self.attn_mask) if tensor is not None]
        return self.query.dim() == 4 and all(tensor.stride(-1) == 1 for tensor in given)

    def _is_aligned(self, dtype: torch.dtype) -> bool:
        return self.query.shape[-1] * dtype.itemsize % 16 == 0 and self.query.shape[1] == self.key.shape[1]

    def _bias(self, dtype: torch.dtype, *, expanded: bool = False) -> torch.Tensor | None:
        """What a mask adds to the scores."""
        if self.attn_mask is None:
            return None
        bias = self.attn_mask
        if bias.dtype is torch.bool:
            bias = torch.zeros_like(bias, dtype=dtype).masked_fill_(bias.logical_not(), float("-inf"))
        return bias.expand(*self.query.shape[:3], self.key.shape[2]) if expanded else bias
