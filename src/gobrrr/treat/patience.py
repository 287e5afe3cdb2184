"""Patience: what takes too long is interrupted, as ^C would do it, and only this one treatment has failed.

A compiler may trace a loop of a thousand tokens for an hour, and nothing asks it to stop.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite

from gobrrr import units
from gobrrr.treat.treatment import Unfit


class _Overdue(BaseException):
    """No Exception, like KeyboardInterrupt: compilers catch those and go on."""


@contextmanager
def given_up_after(seconds: float) -> Iterator[None]:
    """Raises Unfit inside of what takes longer. Only where signals arrive, and nobody else has set the alarm."""
    if seconds <= 0:
        raise Unfit("nothing is left of the budget for its first step")
    if not isfinite(seconds) or not _alarm_is_free():
        yield
        return

    def ring(_number: int, _frame: object) -> None:
        raise _Overdue

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    except _Overdue:
        raise Unfit(f"its first step takes longer than {units.seconds(seconds)}, what was left of the budget") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _alarm_is_free() -> bool:
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        return False
    return signal.getitimer(signal.ITIMER_REAL)[0] == 0 and signal.getsignal(signal.SIGALRM) is not None
