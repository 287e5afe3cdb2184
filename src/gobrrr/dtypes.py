"""Element types by the short names that every table, file and flag uses.

Torch spells a type `torch.bfloat16`, a recorded trace `c10::BFloat16`, a datasheet BF16: here it is `bf16`.
A spelling that nobody has listed is unknown, never one byte wide.
"""

from collections.abc import Mapping
from types import MappingProxyType

MATRIX_MODES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")
"""Ways in which matrix units multiply. tf32 is no storage type: fp32 operands, rounded on the way in."""

WIDER: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "bf16": ("fp32",),
        "fp16": ("bf16", "fp32"),
        "tf32": ("fp32",),
    }
)
"""Modes that a machine without units for one multiplies in instead, the nearest first. None for products of 8-bit
operands: libraries refuse them where there is no unit for them.
"""

ITEM_BYTES: Mapping[str, float] = MappingProxyType(
    {
        "fp64": 8,
        "fp32": 4,
        "bf16": 2,
        "fp16": 2,
        "fp8": 1,
        "fp4": 0.5,
        "int64": 8,
        "int32": 4,
        "int16": 2,
        "int8": 1,
        "uint64": 8,
        "uint32": 4,
        "uint16": 2,
        "uint8": 1,
        "bool": 1,
        "complex32": 4,
        "bcomplex32": 4,
        "complex64": 8,
        "complex128": 16,
    }
)

_SPELLINGS: Mapping[str, str] = MappingProxyType(
    {
        "float64": "fp64",
        "double": "fp64",
        "float32": "fp32",
        "float": "fp32",
        "bfloat16": "bf16",
        "c10::BFloat16": "bf16",
        "float16": "fp16",
        "half": "fp16",
        "c10::Half": "fp16",
        "float8_e4m3fn": "fp8",
        "float8_e5m2": "fp8",
        "float8_e4m3fnuz": "fp8",
        "float8_e5m2fnuz": "fp8",
        "float8_e8m0fnu": "fp8",
        "c10::Float8_e4m3fn": "fp8",
        "c10::Float8_e5m2": "fp8",
        "c10::Float8_e4m3fnuz": "fp8",
        "c10::Float8_e5m2fnuz": "fp8",
        "c10::Float8_e8m0fnu": "fp8",
        "float4_e2m1fn_x2": "uint8",  # two to a byte: torch counts bytes as elements
        "c10::Float4_e2m1fn_x2": "uint8",
        "long": "int64",
        "long int": "int64",
        "long long": "int64",
        "int": "int32",
        "short": "int16",
        "short int": "int16",
        "signed char": "int8",
        "long unsigned int": "uint64",
        "unsigned int": "uint32",
        "short unsigned int": "uint16",
        "unsigned char": "uint8",
        "c10::complex<c10::Half>": "complex32",
        "c10::complex<c10::BFloat16>": "bcomplex32",
        "c10::complex<float>": "complex64",
        "c10::complex<double>": "complex128",
        # Narrower integers are promises about the value: torch stores each in a byte of its own.
        **{f"{sign}int{bits}": f"{sign}int8" for sign in ("", "u") for bits in range(1, 8)},
        **{f"c10::dummy_{sign}int1_7_t<{bits}>": f"{sign}int8" for sign in ("", "u") for bits in range(1, 8)},
    }
)


def dtype_name(spelling: str) -> str | None:
    """The short name of a type however torch or a trace spells it, or None if nobody knows."""
    bare = spelling.removeprefix("torch.")
    name = _SPELLINGS.get(bare, bare)
    return name if name in ITEM_BYTES else None
