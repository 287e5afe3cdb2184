"""Running a program as Python would: `python SCRIPT ARGS…`, `python -m MODULE ARGS…`, `python -c CODE ARGS…`."""

import runpy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType

from gobrrr.errors import Interrupted

_OURS = (str(Path(__file__).parents[1]), "<frozen runpy>", runpy.__file__)
"""Where frames come from that Python itself would not show."""


@dataclass(frozen=True, slots=True)
class Script:
    """What to run; `kind` is the option that Python would take, empty for a file."""

    kind: str
    what: str
    args: tuple[str, ...]

    def run(self) -> None:
        sys.argv = [self.kind or self.what, *self.args]
        self._set_path()
        {"": self._run_file, "-m": self._run_module, "-c": self._run_code}[self.kind]()

    def _set_path(self) -> None:
        """Python puts the script's folder first, or the working folder; that of our own command stands there now."""
        if not sys.flags.safe_path:
            sys.path[0] = {"": str(Path(self.what).resolve().parent), "-m": str(Path.cwd()), "-c": ""}[self.kind]

    def _run_file(self) -> None:
        runpy.run_path(self.what, run_name="__main__")

    def _run_module(self) -> None:
        runpy.run_module(self.what, run_name="__main__", alter_sys=True)

    def _run_code(self) -> None:
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(self.what, "<string>", "exec"), vars(main))  # noqa: S102 (what it is for)


def exit_code(run: Callable[[], None]) -> int | str | None:
    """What the program leaves with. An error is shown as Python would show it, without frames of ours."""
    try:
        run()
    except SystemExit as leaving:
        return leaving.code
    except KeyboardInterrupt as error:
        _show(error)
        return Interrupted.exit_code
    except BaseException as error:  # noqa: BLE001 (whatever it is, it is the program's)
        _show(error)
        return 1
    return 0


def _show(error: BaseException) -> None:
    for one in _chain(error):
        one.__traceback__ = without_ours(one.__traceback__)
    sys.excepthook(type(error), error, error.__traceback__)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """It, and what led to it."""
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            waiting += [one.__cause__, one.__context__]
            yield one


def without_ours(shown: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames by which we run a program or listen to it."""
    if shown is None:
        return None
    rest = without_ours(shown.tb_next)
    if shown.tb_frame.f_code.co_filename.startswith(_OURS):
        return rest
    return TracebackType(rest, shown.tb_frame, shown.tb_lasti, shown.tb_lineno)
