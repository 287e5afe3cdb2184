"""The last Exams, kept so that one can be shown again without having been asked for."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from gobrrr import schema
from gobrrr.errors import BadInput, Missing
from gobrrr.exam import Exam
from gobrrr.folders import own_folder

MOST = 10
"""An Exam of a large model is a few megabytes."""

LAST = re.compile(r"last(?:~(\d+))?")


def folder() -> Path:
    return own_folder("XDG_STATE_HOME", ".local/state") / "exams"


def keep(exam: Exam, say: Callable[[str], None]) -> bool:
    """Keeps it as the last one and drops the oldest; where nothing can be written, says so and goes on."""
    try:
        schema.write(exam, folder() / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S.%f}.json.gz")
        for old in newest_first()[MOST:]:
            old.unlink(missing_ok=True)
    except (Missing, OSError) as error:
        say(f"examined, but not kept: {error}")
        return False
    return True


def newest_first() -> list[Path]:
    return sorted(folder().glob("*.json.gz"), reverse=True)


def path_of(name: str) -> Path:
    """The file of `last`, of `last~1`, the one before it, and so on; any other name is a path."""
    last = LAST.fullmatch(name)
    if last is None:
        return Path(name)
    kept, back = newest_first(), int(last[1] or 0)
    if not kept:
        raise BadInput("no Exam has been kept yet: gobrrr examine FILE.py:NAME makes one")
    if back >= len(kept):
        raise BadInput(f"there is no {name}: {len(kept)} are kept, the oldest is last~{len(kept) - 1}")
    return kept[back]
