"""Which lines of the user's program make the host wait for the device."""

import warnings
from collections.abc import Callable


def sync_lines(step: Callable[[], object]) -> tuple[str, ...]:
    """`file.py:line` of every synchronising call of one step, in order, by torch's own warning about them."""
    import torch

    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            step()
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return tuple(f"{one.filename}:{one.lineno}" for one in caught if "synchroniz" in str(one.message))
