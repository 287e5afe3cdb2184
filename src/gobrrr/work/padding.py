"""How much of a batch is padding, as far as its inputs say."""

from collections.abc import Mapping
from typing import Any

MASK = "attention_mask"
"""What the libraries that pad call it: 1 for a token, 0 for padding, a row for each sequence."""


def padding_share(inputs: Any) -> float | None:
    """Of all places of the mask; None where the inputs have none of that name and form."""
    mask = inputs.get(MASK) if isinstance(inputs, Mapping) else None
    if mask is None or getattr(mask, "ndim", 0) != 2 or not mask.numel():
        return None
    return 1 - float((mask != 0).float().mean())
