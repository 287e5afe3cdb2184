"""Everything that can go wrong in a way the person at the prompt should hear about.

GobrrrError                  what happened, what we saw, what to type next
├── AnswerIsNo           1   the question was answered, and the answer is no
├── UsageError           2   the command line makes no sense
├── CannotDecide         3   too noisy to judge, or no two steps are alike
├── BadInput             4   a file is corrupt, of a newer version, or not what it should be
├── ProgramFailed        5   the user's own code raised
├── Missing              6   something needed is not there: a package, a device, free memory
└── Interrupted        130   ^C

Only `gobrrr.cli` turns these into exit codes; everything else raises them. A bug of ours shows its traceback and is 70.
An `assert` is for our own invariants and never for what a user can cause.
"""

from typing import ClassVar

BUG = 70
"""The exit code of our own mistakes: 1 would be an answer."""


class GobrrrError(Exception):
    """A sentence for the person at the prompt, with the exit code that goes with it."""

    exit_code: ClassVar[int] = 1


class AnswerIsNo(GobrrrError):
    exit_code = 1


class UsageError(GobrrrError):
    exit_code = 2


class CannotDecide(GobrrrError):
    exit_code = 3


class BadInput(GobrrrError):
    exit_code = 4


class ProgramFailed(GobrrrError):
    exit_code = 5


class Missing(GobrrrError):
    exit_code = 6


class Interrupted(GobrrrError):
    exit_code = 130
