"""Exams of traces, kept so that a large trace is read once: opened again, it takes what its Exam takes to read."""

from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path

from gobrrr import schema
from gobrrr.errors import BadInput, Missing
from gobrrr.exam import Exam
from gobrrr.folders import own_folder
from gobrrr.timing.traces.source import Source
from gobrrr.work.recorded_ops import has_torch
from gobrrr.work.registry import is_extended

LEAST_BYTES = 1 << 16
"""Of a trace worth keeping: smaller ones are read as soon."""

MOST = 64
MOST_BYTES = 256 << 20
"""Of what is kept: Exams take megabytes, and the one used longest ago goes first."""


def folder() -> Path:
    return own_folder("XDG_CACHE_HOME", ".cache") / "traces"


def load(source: Source) -> Exam | None:
    """What was found in it before; None where there is nothing, or nothing that can be read."""
    try:
        path = _path(source)
        if path is None or not path.exists():
            return None
        path.touch()
        return schema.read(Exam, path)
    except (BadInput, Missing, OSError):
        return None


def store(source: Source, exam: Exam) -> None:
    """Keeps it and drops the oldest. Where nothing can be written, the trace is read again next time."""
    try:
        path = _path(source)
        if path is None:
            return
        schema.write(exam, path)
        for old in _superfluous(folder().glob("*.json")):
            old.unlink(missing_ok=True)
    except (Missing, OSError):
        return


def _path(source: Source) -> Path | None:
    """Named after the file as it is now and after the code that read it: whatever changes, it is another name.

    What lies behind an address, and formulas of a user's own, may change without a sign, so nothing of that is kept.
    """
    if not isinstance(source, Path) or is_extended():
        return None
    state = source.stat()
    if state.st_size < LEAST_BYTES:
        return None
    key = (str(source.resolve()), state.st_size, state.st_mtime_ns, _code(), has_torch())
    return folder() / f"{sha256(repr(key).encode(errors='surrogateescape')).hexdigest()[:32]}.json"


@cache
def _code() -> tuple[str, int]:
    """Of all that goes into an Exam, the newest: a formula that changed is an Exam that changes."""
    package = Path(__file__).parent
    return str(package), max(file.stat().st_mtime_ns for file in package.rglob("*.py"))


def _superfluous(files: Iterable[Path]) -> Iterable[Path]:
    left_bytes = MOST_BYTES
    newest_first = sorted(files, key=lambda file: file.stat().st_mtime_ns, reverse=True)
    for number, file in enumerate(newest_first):
        left_bytes -= file.stat().st_size
        if number >= MOST or left_bytes < 0:
            yield file
