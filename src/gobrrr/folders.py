"""Where this user's programs keep what they made, by the XDG rules."""

import os
from pathlib import Path

from gobrrr.errors import Missing


def own_folder(variable: str, usual: str) -> Path:
    """Ours below the folder that the variable names, or below the usual one; a relative path there counts as unset."""
    named = Path(os.environ.get(variable, ""))
    if named.is_absolute():
        return named / "gobrrr"
    try:
        return Path.home() / usual / "gobrrr"
    except RuntimeError:
        raise Missing(f"this user has no home folder, and {variable} is not set") from None
