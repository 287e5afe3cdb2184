"""How torch multiplies fp32: a setting for each layer, and two older switches. Torch has no public names for all."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from gobrrr.timing.state.undo import PutBack, by_value

_LAYERS = (
    ("generic", "all"),
    *((backend, op) for backend in ("cuda", "mkldnn") for op in ("all", "matmul", "conv", "rnn")),
)
"""Torch keeps one fp32 precision for each; a "none" inherits from (backend, all) and that from (generic, all)."""


def fp32_precisions() -> PutBack:
    """The older switches first: they write some layers, and have variables of their own."""
    import torch

    put_backs = (
        _older_switch(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        _older_switch(torch._C._get_cudnn_allow_tf32, torch._C._set_cudnn_allow_tf32),  # noqa: SLF001 (no public ones)
        by_value(own_precisions, _set_precisions),
    )

    def put_back() -> None:
        for each in put_backs:
            each()

    return put_back


def own_precisions() -> list[str]:
    """Reading gives the inherited value, so the outer layers are cleared while the inner ones are read."""
    from torch._C import _get_fp32_precision_getter as get
    from torch._C import _set_fp32_precision_setter as put

    own: list[str] = []
    for layer in _LAYERS:
        own.append(get(*layer))
        if layer[1] == "all":
            put(*layer, "none")
    for layer, precision in zip(_LAYERS, own, strict=True):
        if layer[1] == "all":
            put(*layer, precision)
    return own


def _set_precisions(own: list[str]) -> None:
    from torch._C import _set_fp32_precision_setter as put

    for layer, precision in zip(_LAYERS, own, strict=True):
        put(*layer, precision)


def _older_switch(read: Callable[[], Any], write: Callable[[Any], object]) -> PutBack:
    """Where older and newer settings contradict each other some versions refuse to read it; then it stays."""

    def readable() -> Any:
        with _quietly(), suppress(RuntimeError):
            return read()
        return None

    def put_back(before: Any) -> None:
        if before is not None:
            with _quietly():
                write(before)

    return by_value(readable, put_back)


@contextmanager
def _quietly() -> Iterator[None]:
    """Some versions of torch advise against the older switches wherever they are read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
