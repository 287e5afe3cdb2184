"""What a row of a trace is, by the category that profilers of all ages and vendors gave it."""

from gobrrr.timing.timeline import SpanKind

_KINDS = {
    **dict.fromkeys("cpu_op operator".split(), SpanKind.OP),
    **dict.fromkeys(
        "cuda_runtime cuda_driver runtime driver hip_runtime hip_driver xpu_runtime xpu_driver mtia_runtime "
        "glow_runtime privateuse1_runtime privateuse1_driver".split(),
        SpanKind.RUNTIME,
    ),
    **dict.fromkeys(
        "kernel gpu_kernel concurrent_kernel gpu_memset memset xpu_kernel mtia_ccp_events hpu_op".split(),
        SpanKind.KERNEL,
    ),
    **dict.fromkeys("gpu_memcpy memcpy gpu_memcpy2 gpu_memcpy_p2p".split(), SpanKind.TRANSFER),
    **dict.fromkeys("user_annotation cpu_instant".split(), SpanKind.ANNOTATION),
    "python_function": SpanKind.PYTHON,
    "overhead": SpanKind.PROFILER,
}

_SILENT = frozenset(
    "trace gpu_user_annotation cuda_sync xpu_sync cuda_event external_correlation cpu_instant_event mtia_insight "
    "mtia_counters cuda_profiler_range collective_comm xpu_scope_profiler".split()
)
"""Of the profiler itself: what spans all, what the device repeats of the host, and moments."""

_FLOWS = frozenset("ac2g async_cpu_to_gpu async".split())
"""Of arrows from a call to what it asked for. Others join forward and backward, which numbers do better."""

_ANNOTATIONS = ("ProfilerStep#", "Optimizer.", "enumerate(DataLoader", "nccl:", "gloo:", "[pl]", "## Call")
"""How names begin that the first profilers listed among the ops."""

STEP = "ProfilerStep#"
"""How the profiler names its own mark around a step."""


def kind_of(category: str | None) -> SpanKind | None:
    """None for what says nothing about time, or only what the device repeats of the host."""
    return _KINDS.get((category or "").lower())


def is_strange(category: str | None) -> bool:
    """Of no profiler of torch's that we know: what it holds may be anything, even kernels."""
    return kind_of(category) is None and (category or "").lower() not in _SILENT


def is_arrow(category: str | None) -> bool:
    return (category or "").lower() in _FLOWS


def is_annotation(name: str) -> bool:
    return name.startswith(_ANNOTATIONS)
