"""Whether fp32 operands are multiplied as tf32, read from torch's flags.

`fp32_precision` answers whichever of torch's three ways set it; the older getters raise once both are mixed.
"""


def matmul_is_tf32() -> bool:
    import torch

    return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")


def convolution_is_tf32() -> bool:
    import torch

    return bool(torch.backends.cudnn.conv.fp32_precision == "tf32")  # type: ignore[attr-defined]
