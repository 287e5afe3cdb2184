"""What a row of a trace is, by the category that profilers of all ages and vendors gave it."""

from gobrrr.timing.timeline import SpanKind

_KINDS = {
    **dict.fromkeys("cpu_op operator".split(), SpanKind.OP),
    **dict.fromkeys(
        "cuda_runtime cuda_driver runtime driver hip_runtime hip_driver xpu_runtime mtia_runtime "
        "privateuse1_runtime privateuse1_driver".split(),
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

_FLOWS = frozenset("ac2g async_cpu_to_gpu async".split())
"""Of arrows from a call to what it asked for. Others join forward and backward, which numbers do better."""

_ANNOTATIONS = ("ProfilerStep#", "Optimizer.", "enumerate(DataLoader", "nccl:", "gloo:", "[pl]", "## Call")
"""How names begin that the first profilers listed among the ops."""

STEP = "ProfilerStep#"
"""How the profiler names its own mark around a step."""


def kind_of(category: str | None) -> SpanKind | None:
    """None for what says nothing about time, or only what the device repeats of the host."""
    return _KINDS.get((category or "").lower())


def is_arrow(category: str | None) -> bool:
    return (category or "").lower() in _FLOWS


def is_annotation(name: str) -> bool:
    return name.startswith(_ANNOTATIONS)
