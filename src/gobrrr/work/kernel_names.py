"""What a kernel's name gives away, where nothing better was recorded: its class, its types, never its work."""

import re
from functools import lru_cache

from gobrrr.work.op import OpClass

COLLECTIVES = re.compile(
    r"([nrhx]|ms)ccl|\b(one)?ccl(::|_)|gloo:|\bc10d::|deepep|deep_ep|nvshmem|rocshmem|symm_mem|symmetric_memory|multimem|"
    r"(cross_device|(?<!sm)all)_?reduce(?!d)|all_?gather|reduce_?scatter|all_?to_?all|"
    r"(intranode|internode|low_latency)\w*(dispatch|combine)|\bquickreduce|p2p_?(send|recv)"
)
"""Collectives by whoever wrote them: vendors' libraries, custom and symmetric-memory all-reduce, expert-parallel
dispatch and combine. In small letters: looking for either case takes three times as long."""

_CLASSES = (
    (OpClass.ELEMENTWISE, re.compile(r"^triton_(poi|for)_")),
    (OpClass.NORMALIZATION, re.compile(r"^triton_(red|per)_")),
    (OpClass.COMMUNICATION, re.compile(COLLECTIVES.pattern, re.IGNORECASE)),
    (
        OpClass.CONTRACTION,
        re.compile(
            r"gemm|gemv|_mm_|matmul|cublas|cutlass|^Cijk_|conv(?!ert)|wgrad|dgrad|winograd|flash|fmha|attention|attn|"
            r"dot_kernel|xmma|nvjet|_tem_fused|wmma|implicit_",
            re.IGNORECASE,
        ),
    ),
    (OpClass.OPTIMIZER, re.compile(r"adam|lamb_|sgd_|multi_tensor_apply", re.IGNORECASE)),
    (
        OpClass.NORMALIZATION,
        re.compile(r"softmax|norm|\bbn_|::bn_|reduce|reduction|_red_fused|_per_fused|cumsum|scan", re.IGNORECASE),
    ),
    (OpClass.INDEXING, re.compile(r"index|gather|scatter|embedding|sort|topk|nonzero", re.IGNORECASE)),
    (OpClass.MOVEMENT, re.compile(r"copy|memcpy|memset|fill|transpose|nchwto|nhwcto|\bcat|catarray", re.IGNORECASE)),
    (
        OpClass.ELEMENTWISE,
        re.compile(r"elementwise|_poi_fused|pointwise|dropout|gelu|silu|relu|rotary|rope|activation", re.IGNORECASE),
    ),
)
"""The most telling first: the name of a fused attention holds a softmax, that of a collective a reduction, that of a
compiler's kernel everything that went into it."""

_TF32 = re.compile(r"tf32|(?<!bf16_)(?<!f16_)s1688(?:gemm|fprop|dgrad|wgrad|cudnn)|tensorop_s1688", re.IGNORECASE)


_NAMES = 1 << 12
"""Kept of what was asked: a step has thousands of kernels and some hundred names."""


@lru_cache(maxsize=_NAMES)
def class_of(kernel: str) -> OpClass:
    return next((cls for cls, pattern in _CLASSES if pattern.search(kernel)), OpClass.OTHER)


@lru_cache(maxsize=_NAMES)
def is_communication(kernel: str) -> bool:
    return COLLECTIVES.search(kernel.lower()) is not None


@lru_cache(maxsize=_NAMES)
def is_tf32(kernel: str) -> bool:
    """Whether it rounds fp32 operands on their way into the matrix units."""
    return _TF32.search(kernel) is not None


_TYPES = (
    ("bf16", re.compile(r"bfloat16|bf16", re.IGNORECASE)),
    ("fp16", re.compile(r"c10::half|__half|\bhalf\b|_h?fp16|f16f16|h884|h1688|hgemm", re.IGNORECASE)),
    ("fp64", re.compile(r"\bdouble\b|dgemm")),
    ("fp32", re.compile(r"\bfloat\b|sgemm|scudnn|s1688|fp32|f32", re.IGNORECASE)),
)


@lru_cache(maxsize=_NAMES)
def type_of(kernel: str) -> str | None:
    """Of the elements that it moves, from its template's arguments; the narrow ones are named beside their sums."""
    return next((name for name, pattern in _TYPES if pattern.search(kernel)), None)
