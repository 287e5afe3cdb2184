"""Reductions: every input element takes part once; the result is small."""

from gobrrr.work.call import Call
from gobrrr.work.op import OpClass
from gobrrr.work.registry import counted, formula
from gobrrr.work.work import Counts, Work


def reduced(call: Call, flops: float, functions: Counts) -> Work:
    """So many FLOPs and evaluations per input element."""
    elements = sum(tensor.numel for tensor in call.tensors(*_reduced_names(call)))
    return counted(
        call,
        vector_flops=flops * elements,
        vector={function: number * elements for function, number in functions.items()},
    )


def _reduced_names(call: Call) -> tuple[str, ...]:
    return ("self",) if "self" in call.args else tuple(call.args)[:1]


@formula(
    *"sum nansum mean nanmean prod amax amin max min argmax argmin any all aminmax count_nonzero cummax cummin cumsum "
    "cumprod _foreach_max _is_all_true _is_any_true equal histc bincount _cummax_helper _cummin_helper trace".split(),
    cls=OpClass.NORMALIZATION,
)
def reduction(call: Call) -> Work:
    """One addition or comparison per element. `max(a, b)` of two tensors is pointwise and counts the same."""
    return reduced(call, 1, {"fma": 1})


@formula(*"var std var_mean std_mean".split(), cls=OpClass.NORMALIZATION)
def variance(call: Call) -> Work:
    """Mean, difference, square and sum."""
    return reduced(call, 4, {"fma": 3})


@formula(
    *"linalg_vector_norm norm frobenius_norm _foreach_norm dist".split(),
    cls=OpClass.NORMALIZATION,
)
def vector_norm(call: Call) -> Work:
    """Square and add; the root of one number per row is nothing."""
    return reduced(call, 2, {"fma": 1})


@formula("logsumexp", "logcumsumexp", cls=OpClass.NORMALIZATION)
def log_sum_exp(call: Call) -> Work:
    """Maximum, difference, exponential, sum."""
    return reduced(call, 4, {"exp": 1, "fma": 3})


@formula("_cdist_forward", cls=OpClass.NORMALIZATION)
def pairwise_distances(call: Call) -> Work:
    """A difference, a square and an addition for each coordinate of each pair."""
    coordinates = call.out.numel * call["x1"].shape[-1]
    return counted(call, vector_flops=3 * coordinates, vector={"fma": 2 * coordinates})
