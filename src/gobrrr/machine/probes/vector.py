"""V: fused multiply-adds outside the matrix units, at 2 FLOPs each.

In fp64 and fp32 only: torch's elementwise kernels compute half types in fp32, so nothing runs at another rate.
"""

from gobrrr.machine.bench import Bench, Unmeasurable, rates
from gobrrr.machine.probes.chains import chain_seconds
from gobrrr.machine.probes.registry import Samples, probe_each, results_of


@probe_each("vector", ("fp64", "fp32"), "{} vector")
def vector(bench: Bench, member: str) -> Samples:
    if bench.kind == "cpu":
        return _as_matmul(bench, member)
    if bench.kind != "cuda":
        raise Unmeasurable(f"nobody has written this probe for {bench.kind}")
    return {f"vector_flops_per_s.{member}": rates(2, chain_seconds(bench, "fma", member))}


def _as_matmul(bench: Bench, dtype: str) -> Samples:
    """A CPU's products run on its vector units: a library's GEMM *is* the fused multiply-add loop, in
    registers, that one would write to measure them, so its rate is theirs.

    Both values come from one measurement, and it replaces an older one of the product.
    """
    matmul = results_of(bench, f"matmul.{dtype}")
    return {f"vector_flops_per_s.{dtype}": matmul[f"matmul_flops_per_s.{dtype}"]}
