"""Measurements kept from one run to the next, one file for each machine."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from gobrrr import schema
from gobrrr.errors import BadInput, Missing
from gobrrr.folders import own_folder
from gobrrr.machine.ceilings import Ceilings
from gobrrr.machine.identity import Machine


def folder() -> Path:
    """Where the XDG rules put what can be made again."""
    return own_folder("XDG_CACHE_HOME", ".cache")


def path_of(fingerprint: str) -> Path:
    return folder() / f"machine-{fingerprint}.json"


def load(machine: Machine, say: Callable[[str], None]) -> Ceilings | None:
    """What was measured on this machine before. A file that cannot be read is said once and measured anew."""
    try:
        path = path_of(machine.fingerprint)
        if not path.exists():
            return None
        ceilings = schema.read(Ceilings, path)
        datetime.fromisoformat(ceilings.measured_at)
    except Missing:
        return None
    except (BadInput, OSError, ValueError) as error:
        say(f"{error}; measuring again")
        return None
    if ceilings.fingerprint != machine.fingerprint:
        say(f"{path} belongs to another machine; measuring again")
        return None
    return ceilings


def store(ceilings: Ceilings, say: Callable[[str], None]) -> None:
    """Keeps them; where nothing can be written, says so, for the measurement itself is good."""
    try:
        schema.write(ceilings, path_of(ceilings.fingerprint))
    except Missing as error:
        say(f"measured, but not kept: {error}")
