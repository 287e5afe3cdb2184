"""The attendant: sits between the steps of somebody's program and lets an examination have them.

It looks for the period, looks at a few steps, lends the next ones to the examination and is gone. Nothing that goes
wrong on our side reaches the program.
"""

import os
import threading
import traceback
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, NoReturn

from gobrrr import units
from gobrrr.errors import GobrrrError
from gobrrr.exam import Exam
from gobrrr.examination import examination
from gobrrr.integrations.period import Beat, Event, Heard, Kind, Shapes
from gobrrr.steps import Ended, Spoiled, Steps
from gobrrr.work.padding import padding_share

if TYPE_CHECKING:
    from gobrrr.integrations.watch import Watch

LOOKED_AT = 5
"""Steps between the period and the examination: their shapes say which step is the usual one."""

NEEDED = "a verdict takes about 40 steps, or a few seconds of shorter ones"


class Stopped(SystemExit):
    """Ends the program where its step has ended, as `sys.exit()` there would."""


class Attendant:
    def __init__(
        self,
        target: str,
        report: Callable[[Exam], None],
        say: Callable[[str], None],
        *,
        step_by: Kind | None = None,
        stop: bool = False,
    ) -> None:
        self._target, self._report, self._say, self._stop = target, report, say, stop
        self._beat, self._shapes = Beat(step_by), Shapes()
        self._heard: dict[Kind, int] = dict.fromkeys(Kind, 0)
        self._watch: Watch | None = None
        self._thread: int | None = None
        self._part: Steps[Exam] | None = None
        self._left = 0
        self._rounds = 1
        self._usual: Hashable | None = None
        self._ended_at_s: list[float] = []
        self._busy = self._over = self._disturbed = False

    def begin(self) -> None:
        """Once torch is there."""
        from gobrrr.integrations.watch import Watch

        self._watch = Watch(self._hear)

    def end(self) -> None:
        """The program is over: what was seen until now is examined, or told."""
        if self._over:
            return
        self._stop = False
        while self._part is not None and self._thread == threading.get_ident():
            self._advance(partial(self._part.throw, Ended()))
        if not self._over:
            self._say(self._seen())
        self._leave()

    def before_fork(self) -> None:
        """The child shall carry nothing of ours: what holds during this step is left now, and the next one is taken."""
        if self._part is not None and not self._busy and self._thread == threading.get_ident():
            self._advance(partial(self._part.throw, Spoiled(mid_step=True)))

    def in_child(self) -> None:
        self._leave()

    def _hear(self, event: Event) -> None:
        self._thread = self._thread or threading.get_ident()
        if self._over or self._busy or self._thread != threading.get_ident():
            return
        self._heard[event.kind] += 1
        heard = self._beat.hear(event)
        if heard is Heard.FOUND:
            self._found()
        elif heard is not Heard.NOTHING:
            self._pass(spoiled=heard is Heard.SPOILED_STEP)

    def _found(self) -> None:
        """A new belief: what was examined under another one is dropped."""
        self._drop_part()
        self._shapes, self._ended_at_s = Shapes(), [perf_counter()]
        if self._watch is not None:
            self._watch.narrow()
            self._round_up(self._watch)

    def _pass(self, *, spoiled: bool) -> None:
        """A step has ended."""
        if self._watch is None or _captures():
            self._disturbed = True
            return
        self._ended_at_s.append(perf_counter())
        rounds, shape = self._round_up(self._watch)
        spoiled, self._disturbed = spoiled or self._disturbed, False
        if not spoiled:
            self._shapes.number[shape] += 1
        if self._part is None:
            if self._shapes.number.total() >= LOOKED_AT:
                self._begin_part(rounds)
        elif spoiled or self._usual not in (None, shape):
            self._advance(partial(self._part.throw, Spoiled()))
        else:
            self._left -= 1
            if not self._left:
                self._advance(partial(next, self._part))

    @staticmethod
    def _round_up(watch: "Watch") -> tuple[int, Any]:
        """Rounds and shape of the step that has ended."""
        rounds, shape = watch.backwards or len(watch.shapes), tuple(watch.shapes)
        watch.backwards, watch.shapes = 0, []
        return max(1, rounds), shape

    def _begin_part(self, rounds: int) -> None:
        self._rounds, self._usual = rounds, self._shapes.usual()
        self._part = examination(self._target, self._say, one_by_one=len(self._shapes.number) > 1)
        self._advance(partial(next, self._part))

    def _advance(self, advance: Callable[[], int]) -> None:
        """Goes on with the examination until it wants more steps; what happens to it happens to nobody else."""
        self._busy = True
        try:
            exam = self._examined(advance)
            if exam is not None:
                self._finish(exam)
        except Ended:
            self._part = None
        except GobrrrError as error:
            self._give_up(str(error))
        except Exception:  # noqa: BLE001 (a bug of ours is not the program's)
            self._give_up(f"the error below is a bug of gobrrr's, please report it\n{traceback.format_exc()}")
        except KeyboardInterrupt:  # the program's to handle
            if not self._over:
                self._give_up("interrupted before the verdict")
            raise
        finally:
            self._busy = False

    def _examined(self, advance: Callable[[], int]) -> Exam | None:
        try:
            self._left = advance()
            while not self._left and self._part is not None:
                self._left = next(self._part)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        return None

    def _give_up(self, sentence: str) -> None:
        self._leave()
        self._say(sentence)

    def _finish(self, exam: Exam) -> None:
        exam = self._completed(exam)
        self._leave()
        try:
            self._report(exam)
        except KeyboardInterrupt:  # what was meant for the program shall not cost the verdict
            self._report(exam)
            raise
        if self._stop:
            raise Stopped(0)

    def _completed(self, exam: Exam) -> Exam:
        number = len(self._shapes.number)
        which = "" if self._usual is None else f"those of one, {units.percent(self._shapes.share(self._usual), 0)}, "
        said = [f"steps of {number} shapes passed: {which or 'all '}were examined"] if number > 1 else []
        quality = replace(exam.quality, warnings=(*exam.quality.warnings, *said))
        padding = None if self._watch is None else padding_share(self._watch.inputs)
        return replace(exam, step_period=self._rounds, padding=padding, quality=quality)

    def _leave(self) -> None:
        self._over = True
        self._drop_part()
        if self._watch is not None:
            self._watch.close()

    def _drop_part(self) -> None:
        """What the part has entered is left by the thread that entered it; while we are busy it is over anyway."""
        part, self._part = self._part, None
        if part is not None and self._thread == threading.get_ident() and not self._busy:
            part.close()

    def _seen(self) -> str:
        if self._watch is None:
            return "the program never imported torch: there is nothing to examine"
        steps = len(self._ended_at_s)
        if self._beat.word is not None and steps > 1:
            lasted_s = median(b - a for a, b in zip(self._ended_at_s, self._ended_at_s[1:], strict=False))
            return f"the program ended after {steps} steps of about {units.seconds(lasted_s, 2)}: {NEEDED}"
        model, backward, optimizer = (self._heard[kind] for kind in Kind)
        return (
            f"no step was found: nothing repeats in {model} calls of a model, {backward} backward passes and "
            f"{optimizer} optimizer steps that were heard; {NEEDED}"
        )


def _captures() -> bool:
    """While a CUDA graph is being captured nothing may be synchronised."""
    import torch

    initialized: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return initialized and torch.cuda.is_current_stream_capturing()


@contextmanager
def attending(attendant: Attendant) -> Iterator[None]:
    """The attendant begins when the body imports torch and ends with it, however that leaves."""
    from gobrrr.integrations.imports import when_imported

    process, leave = os.getpid(), os._exit

    def _exit(code: int) -> NoReturn:
        if os.getpid() == process:
            attendant.end()
        leave(code)

    os.register_at_fork(before=attendant.before_fork, after_in_child=attendant.in_child)
    os._exit = _exit  # type: ignore[assignment]
    try:
        with when_imported("torch", attendant.begin):
            yield
    finally:
        os._exit = leave
        if os.getpid() == process:
            attendant.end()
