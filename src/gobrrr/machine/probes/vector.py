"""V: fused multiply-adds outside the matrix units, at 2 FLOPs each."""

from gobrrr.machine.bench import Bench, Unmeasurable, rates
from gobrrr.machine.probes.chains import chain_seconds
from gobrrr.machine.probes.registry import Samples, probe_each, results_of


@probe_each("vector", ("fp64", "fp32", "fp16", "bf16"), "{} vector")
def vector(bench: Bench, member: str) -> Samples:
    if bench.kind == "cpu":
        return _as_matmul(bench, member)
    if bench.kind != "cuda":
        raise Unmeasurable(f"nobody has written this probe for {bench.kind}")
    _refuse_halves(bench.machine.architecture or "", member)
    return {f"vector_flops_per_s.{member}": rates(2, chain_seconds(bench, "fma", member))}


def _refuse_halves(architecture: str, dtype: str) -> None:
    """Two to an instruction takes NVIDIA's own assembler, and bf16 its Ampere or later."""
    first = {"fp16": 53, "bf16": 80}.get(dtype)
    if first is not None and not (architecture.startswith("sm_") and int(architecture[3:]) >= first):
        raise Unmeasurable(f"no packed {dtype} multiply-add for {architecture or 'an unknown architecture'}")


def _as_matmul(bench: Bench, dtype: str) -> Samples:
    """A CPU's products run on its vector units: a library's GEMM *is* the fused multiply-add loop, in
    registers, that one would write to measure them, so its rate is theirs. Half types are computed in fp32.

    Both values come from one measurement, and it replaces an older one of the product.
    """
    if dtype not in ("fp64", "fp32"):
        raise Unmeasurable(f"a CPU computes {dtype} in fp32")
    matmul = results_of(bench, f"matmul.{dtype}")
    return {f"vector_flops_per_s.{dtype}": matmul[f"matmul_flops_per_s.{dtype}"]}
