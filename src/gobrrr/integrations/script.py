"""Running a program as Python would: `python SCRIPT ARGS…`, `python -m MODULE ARGS…`, `python -c CODE ARGS…`."""

import builtins
import runpy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType
from zipfile import is_zipfile

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
        path = Path(self.what).absolute()
        if path.is_dir() or is_zipfile(path):
            runpy.run_path(self.what, run_name="__main__")
            return
        file = str(path)
        _execute(path.read_bytes(), file, __file__=file, __cached__=None, __loader__=SourceFileLoader("__main__", file))

    def _run_module(self) -> None:
        runpy.run_module(self.what, run_name="__main__", alter_sys=True)

    def _run_code(self) -> None:
        _execute(self.what, "<string>")


def _execute(source: str | bytes, name: str, **variables: object) -> None:
    """As the main module, which it stays: what lives on, such as a handler at exit, may ask for it."""
    main = sys.modules["__main__"] = ModuleType("__main__")
    vars(main).update(variables, __builtins__=builtins)
    exec(compile(source, name, "exec", dont_inherit=True), vars(main))  # noqa: S102 (what it is for)


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
