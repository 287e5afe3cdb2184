"""Pooling, resampling and sampling grids: a small window per output element."""

from math import prod

from gobrrr.work.call import Call
from gobrrr.work.op import OpClass
from gobrrr.work.registry import counted, formula
from gobrrr.work.work import Work


def _windowed(call: Call, elements: int, window: float) -> Work:
    operations = elements * window
    return counted(call, vector_flops=operations, vector={"fma": operations})


def _window(call: Call, dimensions: int) -> int:
    sizes = call["kernel_size"]
    sizes = sizes if isinstance(sizes, tuple) else (sizes,)
    return int(prod(sizes if len(sizes) > 1 else sizes * dimensions))


@formula(
    *"max_pool1d max_pool3d max_pool2d_with_indices max_pool3d_with_indices mkldnn_max_pool2d avg_pool1d "
    "avg_pool2d avg_pool3d".split(),
    cls=OpClass.OTHER,
)
def pool(call: Call) -> Work:
    """One comparison or addition per element of the window and output element."""
    return _windowed(call, call.out.numel, _window(call, len(call.out.shape) - 2))


@formula("avg_pool2d_backward", "avg_pool3d_backward", cls=OpClass.OTHER)
def average_pool_backward(call: Call) -> Work:
    """The input's shape is looked at, its elements are not."""
    grad = call["grad_output"]
    operations = grad.numel * _window(call, len(grad.shape) - 2)
    return counted(call, vector_flops=operations, vector={"fma": operations}, read=grad.unique_bytes)


@formula("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward", cls=OpClass.OTHER)
def max_pool_backward(call: Call) -> Work:
    """Each gradient goes to the element that won; the indices say which, so the input is not read."""
    grad, indices = call["grad_output"], call["indices"]
    return counted(
        call,
        vector_flops=grad.numel,
        vector={"fma": grad.numel},
        read=grad.unique_bytes + indices.unique_bytes,
    )


@formula(
    *"_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool2d adaptive_max_pool2d adaptive_max_pool3d "
    "adaptive_avg_pool1d".split(),
    cls=OpClass.OTHER,
)
def adaptive_pool(call: Call) -> Work:
    """Windows tile the input, so each of its elements takes part about once."""
    return _windowed(call, call["self"].numel, 1)


@formula("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward", cls=OpClass.OTHER)
def adaptive_average_pool_backward(call: Call) -> Work:
    operations = call.out.numel
    return counted(call, vector_flops=operations, vector={"fma": operations}, read=call["grad_output"].unique_bytes)


_TAPS = {"nearest": 0, "linear1d": 3, "bilinear2d": 7, "trilinear3d": 15, "bicubic2d": 35}


def _taps(name: str) -> int:
    """Operations per output element: weights and sums of 2ᵈ neighbours, of 16 when bicubic."""
    return next(taps for kind, taps in _TAPS.items() if kind in name)


@formula(
    *(
        f"{prefix}upsample_{kind}{backward}"
        for prefix in ("", "_")
        for kind in (
            *(f"nearest{exact}{d}d" for d in (1, 2, 3) for exact in ("", "_exact")),
            *(
                f"{name}{anti}"
                for name in ("linear1d", "bilinear2d", "trilinear3d", "bicubic2d")
                for anti in ("", "_aa")
            ),
        )
        for backward in ("", "_backward")
    ),
    cls=OpClass.MOVEMENT,
)
def upsample(call: Call) -> Work:
    large = max(tensor.numel for tensor in (*call.tensors(), *call.outputs))
    return _windowed(call, large, _taps(call.name))


@formula("grid_sampler_2d", "grid_sampler_3d", "grid_sampler_2d_backward", cls=OpClass.INDEXING)
def grid_sample(call: Call) -> Work:
    return _windowed(call, call.out.numel, _TAPS["bilinear2d"])
