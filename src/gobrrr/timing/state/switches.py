"""Switches: how torch computes, for everybody. Flags that change what the user's next line computes, or how fast."""

from collections.abc import Iterator
from functools import partial

from gobrrr.timing.state.fp32_precision import fp32_precisions
from gobrrr.timing.state.undo import PutBack, by_value


def switches() -> Iterator[PutBack]:
    import torch.utils.deterministic
    from torch.backends import cuda, cudnn, mkldnn

    yield from (
        by_value(torch.is_grad_enabled, torch.set_grad_enabled),
        by_value(torch.get_default_dtype, torch.set_default_dtype),
        by_value(torch.get_num_threads, torch.set_num_threads),
        by_value(torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
        by_value(
            lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
            lambda on: torch.set_anomaly_enabled(*on),
        ),
        by_value(cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
        by_value(cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp),
        by_value(cuda.math_sdp_enabled, cuda.enable_math_sdp),
        by_value(cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp),
    )
    for owner, name in (
        *((cudnn, name) for name in ("enabled", "benchmark", "benchmark_limit", "deterministic")),
        *((mkldnn, name) for name in ("enabled", "deterministic")),
        (cuda.matmul, "allow_fp16_reduced_precision_reduction"),
        (cuda.matmul, "allow_bf16_reduced_precision_reduction"),
        (cuda.matmul, "allow_fp16_accumulation"),
        (torch.utils.deterministic, "fill_uninitialized_memory"),
    ):
        if hasattr(owner, name):  # not every version has each
            yield by_value(partial(getattr, owner, name), partial(setattr, owner, name))
    yield fp32_precisions()
