"""Rehearsals: plans tried in a process of their own first, because a failed capture leaves a process unusable.

    python -m gobrrr.treat.rehearsal FILE.py:NAME

That process makes the workload once and answers one line for each line it is asked: `[["whole-step-graph", ["step"]]]`
is a plan, `null` says that it went well, and anything else what went wrong.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from tempfile import TemporaryFile
from threading import Timer
from typing import IO, Any

from gobrrr.treat.memory import released
from gobrrr.treat.treatment import Plan
from gobrrr.treat.trial import said_by

STEPS = 3
LONGEST_S = 600.0


@contextmanager
def rehearsals(target: str, most_s: float = LONGEST_S, *, at_once: bool = False) -> Iterator[Callable[..., str | None]]:
    """Of a workload; one that another process cannot make is not rehearsed.

    That process takes a while to make it: `at_once` it begins before it is asked, where it will be.
    """
    if not is_a_file(target):
        yield lambda *_: None
        return
    with TemporaryFile("w+") as errors:
        understudy = Understudy(target, most_s, errors)
        try:
            if at_once:
                understudy.begin()
            yield understudy.rehearse
        finally:
            understudy.end()


@dataclass
class Understudy:
    """The process: there from the first rehearsal to the first failure."""

    target: str
    most_s: float
    errors: IO[str]
    _process: "subprocess.Popen[str] | None" = None

    def rehearse(self, plan: Plan, most_s: float = inf) -> str | None:
        """What went wrong."""
        process, most_s = self.begin(), min(most_s, self.most_s)
        timer = Timer(most_s, process.kill)
        timer.start()
        try:
            answer = self._asked(plan)
        finally:
            timed_out = not timer.is_alive()
            timer.cancel()
        if answer is not None:
            self.end()
        return f"not done after {most_s:.0f} s" if timed_out and answer is not None else answer

    def begin(self) -> "subprocess.Popen[str]":
        """Unless it has begun."""
        if self._process is None:
            command, pipe = [sys.executable, "-m", __spec__.name, self.target], subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self.errors, text=True)  # noqa: S603
        return self._process

    def _asked(self, plan: Plan) -> str | None:
        assert self._process is not None, "somebody is asked"
        assert self._process.stdin is not None, "by a pipe"
        assert self._process.stdout is not None, "and answers by another"
        doses = [[dose.treatment.name, list(dose.sites)] for dose in plan]
        try:
            self._process.stdin.write(json.dumps(doses) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        answer: str | None = json.loads(line) if line else self._last_words()
        return answer

    def _last_words(self) -> str:
        assert self._process is not None, "somebody was asked"
        code = self._process.wait()
        self.errors.seek(0)
        said = self.errors.read().strip().splitlines()
        return said[-1] if said else f"ended with {code}"

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def is_a_file(target: str) -> bool:
    file, colon, _ = target.rpartition(":")
    return bool(colon) and Path(file).is_file()


def rehearser(target: str) -> Callable[[list[Any]], str | None]:
    """In the process of its own: tries a plan on the workload and says what went wrong."""
    from gobrrr.treat.compiling import patient_compiler
    from gobrrr.treat.prescription import doses_of
    from gobrrr.treat.subject import subject_of
    from gobrrr.workload import load_factory

    subject = subject_of(load_factory(target))
    for _ in range(STEPS):
        subject.run()

    def tried(doses: list[Any]) -> str | None:
        try:
            with patient_compiler():
                subject.become(doses_of((name, tuple(sites)) for name, sites in doses))
                for _ in range(STEPS):
                    subject.run()
                _finish(subject.device)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is the answer)
            return said_by(error)
        subject.end()
        released(subject.device)
        return None

    return tried


def _finish(device: str) -> None:
    if device != "cpu":
        import torch

        torch.accelerator.synchronize(device)


def main(target: str) -> None:
    """What a workload prints is no answer: it goes where errors go."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    tried = rehearser(target)
    for line in sys.stdin:
        answers.write(json.dumps(tried(json.loads(line))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
